"""Work on the files of a tree with all processors.

Plain fork and pipes: a slim container may lack the semaphores that `multiprocessing` needs, threads
share one interpreter lock, and a worker that dies of what it reads (killed for memory) costs its
share a second attempt and nothing else.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

#: Fewer bytes in all are not worth a second process (about 10 ms).
WORTH_IT = 32 << 20
MOST_WORKERS = 8

Result = TypeVar("Result")


def spread(work: Callable[[int], Result], sizes: Sequence[int]) -> list[Result]:
    """`[work(0), work(1), ...]`, one for each of `sizes` (bytes, to share the load evenly).

    `work` may run in a copy of this process: it returns its result and must change nothing.
    """
    workers = min(MOST_WORKERS, processors())
    if workers < 2 or sum(sizes) < WORTH_IT or threading.active_count() > 1:
        return [work(index) for index in range(len(sizes))]
    by_size = sorted(range(len(sizes)), key=lambda index: (-sizes[index], index))
    shares = [by_size[number::workers] for number in range(workers)]
    results: dict[int, Result] = {}
    others = [(share, _start(work, share)) for share in shares[1:]]
    try:
        for index in shares[0]:
            results[index] = work(index)
        for share, worker in others:
            done = worker.results() if worker is not None else None
            for place, index in enumerate(share):
                results[index] = work(index) if done is None else done[place]
    finally:
        for _, worker in others:
            if worker is not None:
                worker.end()
    return [results[index] for index in range(len(sizes))]


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

    def results(self) -> list[Result] | None:
        """What the worker sent; None when it did not come to its end."""
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            try:
                results: list[Result] = pickle.load(pipe)  # noqa: S301 (our own copy wrote it)
            except (EOFError, pickle.UnpicklingError):
                return None
        return results

    def end(self) -> None:
        """Free the process; it is killed where it still works."""
        os.close(self._pipe)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _start(work: Callable[[int], Result], share: Sequence[int]) -> _Worker[Result] | None:
    """Fork a worker; None where the system has no room for one."""
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
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump([work(index) for index in share], pipe, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        # Without the parent's clean-up: its buffers and handlers are not ours.
        os._exit(code)
