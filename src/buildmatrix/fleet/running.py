"""Run of a cluster until it is complete or ends early, and the journal of its results.

Ctrl-C, a lost scheduler, and workers that are not replaced end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.errors import BuildmatrixError, ComponentError, Interrupted, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count
from buildmatrix.facts.trees.base import Closing, reason
from buildmatrix.fleet.context import ResultInterner
from buildmatrix.fleet.model import ClusterOptions, RegistryWaiting, WorkerSettings
from buildmatrix.reports.fleet import FleetResult, FleetWork
from buildmatrix.reports.fleet_documents import line

if TYPE_CHECKING:
    from buildmatrix.fleet.cluster import Cluster


# Journal: JSON Lines, complete up to any end of the run


class ResultJournal(Closing):
    """A file of results, started anew by each run; `-` is standard output.

    Each line is written in one call, so that killing the process leaves whole lines. After a
    partial write the file is truncated to whole lines, and writing stops: `trouble` has the reason,
    and the report still has everything.

    Raises `UsageError` for a path that cannot be a file.
    """

    def __init__(self, path: Path) -> None:
        self._name = "standard output" if str(path) == "-" else str(path)
        self.trouble = ""
        try:
            if str(path) == "-":
                self._number = os.dup(1)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._number = os.open(path, flags, 0o666)
        except OSError as error:
            raise UsageError(f"--lines {path} cannot be written: {reason(error)}") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._number)

    def write(self, result: FleetResult) -> None:
        """Add a line. Raises `BrokenPipeError` if standard output is closed."""
        if self.trouble:
            return
        data = line(result).encode("utf-8", "surrogatepass")
        written = 0
        try:
            while written < len(data):
                written += os.write(self._number, data[written:])
        except BrokenPipeError:
            raise
        except OSError as error:
            self.trouble = f"{self._name} can no longer be written: {reason(error)}"
            # Only whole lines remain; a pipe keeps the partial one, which readers skip.
            with contextlib.suppress(OSError):
                os.ftruncate(self._number, os.lseek(self._number, 0, os.SEEK_CUR) - written)


# The run


KILLED = (
    "{} ended its worker each time that it was tried, the last time alone: it takes more memory "
    "than a worker has, or brings down what reads it"
)


#: Without a repr: `asyncio.run` formats its result to restore the handler of Ctrl-C.
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunOutcome:
    """Results of a run."""

    results: tuple[FleetResult, ...]
    #: Sentences; see `FleetReport`.
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    work: FleetWork
    #: Why it ended before everything was judged.
    stopped: BuildmatrixError | None = None


@dataclass(kw_only=True)
class Run(ABC):
    """State of a run: work for a cluster until it is complete or ends early."""

    settings: WorkerSettings
    progress: Progress
    write: Callable[[FleetResult], None]
    waiting: RegistryWaiting
    #: Number of images or files, and their noun.
    total: int
    noun: str
    results: list[FleetResult] = field(default_factory=list)
    alike: ResultInterner = field(default_factory=ResultInterner)
    #: Sentences without duplicates, in order of arrival.
    missing: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    #: Number of completed ones, and of those with results from the store.
    done: int = 0
    stored: int = 0
    bytes_read: int = 0
    #: Number of those tried again at the end.
    retries: int = 0

    @abstractmethod
    def start(self) -> AbstractAsyncContextManager[bool]:
        """Start everything that needs no worker; yield True if there is work for workers."""

    @abstractmethod
    async def judge_all(self, cluster: Cluster) -> None:
        """Judge the rest."""

    def add(self, result: FleetResult) -> None:
        """Add a result."""
        self.results.append(result)
        self.write(result)

    def count_done(self, number: int = 0) -> None:
        """Count as many more as completed, and show it."""
        self.done += number
        self.progress.part("fleet", self.done, self.total, f"{self.noun}s")

    def describe_rest(self) -> str:
        """Describe how much is not completed."""
        return f"{self.total - self.done} of {count(self.total, self.noun)} not judged"

    def sum_cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
        """Return the cost of the run."""
        return FleetWork(
            subjects=self.total,
            stored=self.stored,
            bytes_read=self.bytes_read,
            retries=self.waiting.repeated + self.retries + (cluster.repeated if cluster else 0),
            workers=cluster.workers if cluster else 0,
            seconds=seconds,
            busy=cluster.busy if cluster else 0.0,
        )


async def run_to_end(run: Run, settings: WorkerSettings, options: ClusterOptions) -> RunOutcome:
    """Complete a run and return its results. Raises `ComponentError` if it cannot start."""
    start = time.perf_counter()
    stopped: BuildmatrixError | None = None
    cluster: Cluster | None = None
    with _cancel_on_signals() as interrupted:
        try:
            async with run.start() as is_open:
                if is_open:
                    # Dask takes longer to import than everything else.
                    from buildmatrix.fleet.cluster import connect

                    async with connect(options, settings, run.progress.note) as cluster:
                        await run.judge_all(cluster)
        except asyncio.CancelledError:
            if not interrupted:
                raise
            stopped = Interrupted(
                f"interrupted: {run.describe_rest()}; results are in the store, and the same "
                "command continues from there"
            )
        except ComponentError as error:
            # Earlier runs' results about other images are results, too.
            if not run.results:
                raise
            stopped = error
        except ExceptionGroup as group:
            # The other exceptions in the group follow from the first.
            first = group.exceptions[0]
            if not isinstance(first, ComponentError):
                raise first from group
            stopped = first
    if stopped is not None:
        run.missing[f"{run.describe_rest()}: the run ended before"] = None
    return RunOutcome(
        results=tuple(run.results),
        missing=tuple(run.missing),
        notes=tuple(run.notes),
        work=run.sum_cost(cluster, time.perf_counter() - start),
        stopped=stopped,
    )


@contextlib.asynccontextmanager
async def watch_cluster(cluster: Cluster) -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group that ends early if the cluster has no workers any more."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(cluster.watch_workers())
        yield group
        watching.cancel()


@contextlib.contextmanager
def _cancel_on_signals() -> Iterator[list[int]]:
    """Let SIGINT, SIGTERM and SIGHUP cancel this task; yields the list of those received.

    An exception at an arbitrary point would leave the event loop in an undefined state.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.getsignal(number) for number in numbers}

    def stop(number: int) -> None:
        if not came:
            task.cancel()
        came.append(number)

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield came
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
