"""Parallel work on the files of a tree with all processors.

Plain fork and pipes: a slim container may lack the semaphores that `multiprocessing` needs, threads
share one interpreter lock, and a worker that dies from its input (killed for memory) costs only a
second attempt at its share.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeAlias, TypeVar

#: Fewer bytes in total are not worth a second process (about 10 ms).
WORTH_IT = 32 << 20
MOST_WORKERS = 8
#: Fixed cost of a file, in bytes.
_EACH = 64 << 10
#: Shares of the work per process: the last ones are small, so that all end at about the same time.
_SHARES = 32
#: Format of a share number in the queue. All of them fit into a pipe of one page, the smallest
#: possible.
_TICKET = struct.Struct("<H")

Result = TypeVar("Result")
#: Callback for progress: items done or started, and their total.
Watch: TypeAlias = Callable[[int, int], None]


class Companion(Protocol):
    """A background thread that can pause while this process forks."""

    def pause(self) -> None:
        """End the thread."""

    def resume(self) -> None:
        """Start it again."""


#: Running companions.
COMPANIONS: list[Companion] = []


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress."""


def spread(
    work: Callable[[int], Result], sizes: Sequence[int], watch: Watch = ignore_progress
) -> list[Result]:
    """Return `[work(0), work(1), ...]`, one for each of `sizes` (bytes, to balance the load).

    `work` may run in a copy of this process: it returns its result and must change nothing. `watch`
    is called in this process from time to time, and at the end. With threads beside the
    `COMPANIONS`, a single process does the work.
    """
    with _pause_collection():
        workers = min(MOST_WORKERS, count_processors())
        if workers < 2 or sum(sizes) < WORTH_IT or threading.active_count() > 1 + len(COMPANIONS):
            results = []
            for index in range(len(sizes)):
                results.append(work(index))
                watch(index + 1, len(sizes))
            return results
        return _spread(work, _divide(sizes, workers * _SHARES), workers, watch)


def _spread(
    work: Callable[[int], Result], shares: Sequence[Sequence[int]], workers: int, watch: Watch
) -> list[Result]:
    """Let all processes take shares from one queue until it is empty."""
    trim_heap()
    total = sum(map(len, shares))
    results: dict[int, Result] = {}
    queue, writing = os.pipe()
    helpers: list[_Worker[Result]] = []
    try:
        os.write(writing, b"".join(_TICKET.pack(number) for number in range(len(shares))))
        os.close(writing)
        with _pause_companions():
            for _ in range(workers - 1):
                worker = _fork_worker(work, shares, queue)
                if worker is not None:
                    helpers.append(worker)
        for number in _next_shares(queue):
            # Other processes have taken the earlier shares.
            watch(sum(map(len, shares[:number])), total)
            results |= {index: work(index) for index in shares[number]}
        for worker in helpers:
            for part in worker.results():
                results |= part
    finally:
        os.close(queue)
        for worker in helpers:
            worker.end()
    # Shares that a worker took and did not return are done here.
    every = [results[index] if index in results else work(index) for index in range(total)]
    watch(total, total)
    return every


def _divide(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Divide indices into shares of similar load: each large item first, then runs of small ones.

    Neighbors stay together: most are in the same folder, which is then opened once.
    """
    loads = [size + _EACH for size in sizes]
    full = max(1, sum(loads) // most)
    large = [index for index, load in enumerate(loads) if load >= full]
    shares = [[index] for index in sorted(large, key=lambda index: (-loads[index], index))]
    share: list[int] = []
    held = 0
    for index, load in enumerate(loads):
        if load < full:
            share.append(index)
            held += load
            if held >= full:
                shares.append(share)
                share, held = [], 0
    return [*shares, share] if share else shares


def _next_shares(queue: int) -> Iterator[int]:
    """Yield the numbers of this process's shares; a read from a pipe is never divided."""
    while len(ticket := os.read(queue, _TICKET.size)) == _TICKET.size:
        (number,) = _TICKET.unpack(ticket)
        yield number
        trim_heap()


def trim_heap() -> None:
    """Return memory freed by the C library to the system: up to 30 MB after a large file.

    glibc needs a call for it; others do so themselves.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def _pause_collection() -> Iterator[None]:
    """Disable garbage collection: syntax trees and tables are many objects without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _pause_companions() -> Iterator[None]:
    companions = list(COMPANIONS)
    for companion in companions:
        companion.pause()
    try:
        yield
    finally:
        for companion in companions:
            companion.resume()


def count_processors() -> int:
    """Return the number of processors available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker(Generic[Result]):
    """A forked copy of this process, and the pipe for its results."""

    def __init__(self, process: int, pipe: int) -> None:
        self._process = process
        self._pipe = pipe

    def results(self) -> Iterator[dict[int, Result]]:
        """Yield the results of the worker, share by share, as far as it got."""
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            while True:
                try:
                    yield pickle.load(pipe)  # noqa: S301 (our own copy wrote it)
                except (EOFError, pickle.UnpicklingError):
                    return

    def end(self) -> None:
        """Kill the process if it is still running, and free it."""
        os.close(self._pipe)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _fork_worker(
    work: Callable[[int], Result], shares: Sequence[Sequence[int]], queue: int
) -> _Worker[Result] | None:
    """Fork a worker; None if the system has no capacity, or a thread does not pause."""
    if threading.active_count() > 1:
        return None
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if child:
        os.close(writing)
        return _Worker(child, reading)
    code = 1
    try:
        os.close(reading)
        # Pickled at once: results take several times as much memory as their pickles.
        packed = [
            pickle.dumps({index: work(index) for index in shares[number]}, pickle.HIGHEST_PROTOCOL)
            for number in _next_shares(queue)
        ]
        with os.fdopen(writing, "wb") as pipe:
            pipe.writelines(packed)
        code = 0
    finally:
        # Skips the parent's clean-up: its buffers and handlers are not ours.
        os._exit(code)
