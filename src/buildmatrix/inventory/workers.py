"""Work on the files of a tree with all processors.

Plain fork and pipes: a slim container may lack the semaphores that `multiprocessing` needs, threads
share one interpreter lock, and a worker that dies of what it reads (killed for memory) costs its
share a second attempt and nothing else.
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

#: Fewer bytes in all are not worth a second process (about 10 ms).
WORTH_IT = 32 << 20
MOST_WORKERS = 8
#: What looking at a file costs beside its bytes, in bytes.
_EACH = 64 << 10
#: Shares of the work per process: the last ones are small, so that all end at about the same time.
_SHARES = 32
#: One share in the queue. All of them fit into a pipe of one page, the smallest that there is.
_TICKET = struct.Struct("<H")

Result = TypeVar("Result")
#: Told how many of how many items are done, or begun.
Watch: TypeAlias = Callable[[int, int], None]


class Companion(Protocol):
    """A thread that does nothing for the work, and may rest while this process forks."""

    def pause(self) -> None:
        """End the thread."""

    def resume(self) -> None:
        """Start it again."""


#: Those that run now.
COMPANIONS: list[Companion] = []


def unwatched(done: int, total: int) -> None:
    """Nobody wants to know."""


def spread(
    work: Callable[[int], Result], sizes: Sequence[int], watch: Watch = unwatched
) -> list[Result]:
    """`[work(0), work(1), ...]`, one for each of `sizes` (bytes, to share the load evenly).

    `work` may run in a copy of this process: it returns its result and must change nothing.
    `watch` is called in this process now and then, and when all is done. A thread that is none of
    the `COMPANIONS` leaves the work to one process.
    """
    with _no_collection():
        workers = min(MOST_WORKERS, processors())
        if workers < 2 or sum(sizes) < WORTH_IT or threading.active_count() > 1 + len(COMPANIONS):
            results = []
            for index in range(len(sizes)):
                results.append(work(index))
                watch(index + 1, len(sizes))
            return results
        return _spread(work, _shares(sizes, workers * _SHARES), workers, watch)


def _spread(
    work: Callable[[int], Result], shares: Sequence[Sequence[int]], workers: int, watch: Watch
) -> list[Result]:
    """All processes take the next share from one queue until it is empty."""
    give_back()
    total = sum(map(len, shares))
    results: dict[int, Result] = {}
    queue, writing = os.pipe()
    helpers: list[_Worker[Result]] = []
    try:
        os.write(writing, b"".join(_TICKET.pack(number) for number in range(len(shares))))
        os.close(writing)
        with _companions_at_rest():
            for _ in range(workers - 1):
                worker = _start(work, shares, queue)
                if worker is not None:
                    helpers.append(worker)
        for number in _next_shares(queue):
            # Some process has taken each share before this one.
            watch(sum(map(len, shares[:number])), total)
            results |= {index: work(index) for index in shares[number]}
        for worker in helpers:
            for part in worker.results():
                results |= part
    finally:
        os.close(queue)
        for worker in helpers:
            worker.end()
    # What a worker took and did not bring back is done here.
    every = [results[index] if index in results else work(index) for index in range(total)]
    watch(total, total)
    return every


def _shares(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Indices in shares of about the same load: each large item first, then runs of small ones.

    Neighbours stay together: they mostly lie in one folder, which is opened once for all.
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
    """The numbers of the shares that this process gets; a read of a pipe is never divided."""
    while len(ticket := os.read(queue, _TICKET.size)) == _TICKET.size:
        (number,) = _TICKET.unpack(ticket)
        yield number
        give_back()


def give_back() -> None:
    """Free what the C library holds of freed memory: up to 30 MB behind a large file.

    glibc has a call for it; others give back by themselves.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: syntax trees and tables are many objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _companions_at_rest() -> Iterator[None]:
    companions = list(COMPANIONS)
    for companion in companions:
        companion.pause()
    try:
        yield
    finally:
        for companion in companions:
            companion.resume()


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker(Generic[Result]):
    """A forked copy of this process, and the pipe that its results come through."""

    def __init__(self, process: int, pipe: int) -> None:
        self._process = process
        self._pipe = pipe

    def results(self) -> Iterator[dict[int, Result]]:
        """What the worker sent, share by share; nothing more when it did not come to its end."""
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            while True:
                try:
                    yield pickle.load(pipe)  # noqa: S301 (our own copy wrote it)
                except (EOFError, pickle.UnpicklingError):
                    return

    def end(self) -> None:
        """Free the process; it is killed where it still works."""
        os.close(self._pipe)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _start(
    work: Callable[[int], Result], shares: Sequence[Sequence[int]], queue: int
) -> _Worker[Result] | None:
    """Fork a worker; None where the system has no room for one, or a thread does not rest."""
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
        # Packed at once: what was found takes several times as much room as what is sent of it.
        packed = [
            pickle.dumps({index: work(index) for index in shares[number]}, pickle.HIGHEST_PROTOCOL)
            for number in _next_shares(queue)
        ]
        with os.fdopen(writing, "wb") as pipe:
            pipe.writelines(packed)
        code = 0
    finally:
        # Without the parent's clean-up: its buffers and handlers are not ours.
        os._exit(code)
