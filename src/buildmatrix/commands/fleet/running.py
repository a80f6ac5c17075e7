"""A run that a cluster works on until it is through, or ends early: what it has then is handed out.

Ctrl-C, a scheduler that is gone, and workers that nobody replaces end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from buildmatrix.commands.fleet.model import ClusterOptions, WorkerSettings
from buildmatrix.errors import BuildmatrixError, ComponentError, Interrupted
from buildmatrix.progress import Progress
from buildmatrix.reports.fleet.model import FleetResult, FleetWork

if TYPE_CHECKING:
    from buildmatrix.commands.fleet.cluster import Cluster

KILLED = (
    "{} ended its worker each time that it was tried, the last time alone: it takes more memory "
    "than a worker has, or brings down what reads it"
)


#: Without a text: `asyncio.run` makes that of what it returns, to put back the handler of Ctrl-C.
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcome:
    """What a run found out."""

    results: tuple[FleetResult, ...]
    #: Sentences; see `FleetReport`.
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    work: FleetWork
    #: Why it ended before everything was judged.
    stopped: BuildmatrixError | None = None


class Run(Protocol):
    """Something that a cluster works on until it is through, or ends early."""

    progress: Progress
    results: list[FleetResult]
    #: Sentences, each once, in the order in which they came.
    missing: dict[str, None]
    notes: dict[str, None]

    def begun(self) -> contextlib.AbstractAsyncContextManager[bool]:
        """What needs no worker is under way; whether something is left for workers."""

    async def all(self, cluster: Cluster) -> None:
        """Judge what is left."""

    def left(self) -> str:
        """How much is not through."""

    def cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
        """The bill."""


async def to_end(run: Run, settings: WorkerSettings, options: ClusterOptions) -> Outcome:
    """What comes of a run. Raises `ComponentError` where there is nothing to work with."""
    start = time.perf_counter()
    stopped: BuildmatrixError | None = None
    cluster: Cluster | None = None
    with _interrupts() as interrupted:
        try:
            async with run.begun() as is_open:
                if is_open:
                    # Dask takes longer to import than all of this.
                    from buildmatrix.commands.fleet.cluster import connected

                    async with connected(options, settings, run.progress.note) as cluster:
                        await run.all(cluster)
        except asyncio.CancelledError:
            if not interrupted:
                raise
            stopped = Interrupted(
                f"interrupted: {run.left()}; what was read is kept in the store, and the same "
                "command goes on from there"
            )
        except ComponentError as error:
            # What earlier runs said of other images is an answer, too.
            if not run.results:
                raise
            stopped = error
        except ExceptionGroup as group:
            # One is enough: what a group has besides it follows from it.
            first = group.exceptions[0]
            if not isinstance(first, ComponentError):
                raise first from group
            stopped = first
    if stopped is not None:
        run.missing[f"{run.left()}: the run ended before"] = None
    return Outcome(
        results=tuple(run.results),
        missing=tuple(run.missing),
        notes=tuple(run.notes),
        work=run.cost(cluster, time.perf_counter() - start),
        stopped=stopped,
    )


@contextlib.asynccontextmanager
async def watched(cluster: Cluster) -> AsyncIterator[asyncio.TaskGroup]:
    """A group for tasks, which ends early where the cluster has no workers any more."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(cluster.watch())
        yield group
        watching.cancel()


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP cancel this task; the list has those that came.

    An exception that strikes anywhere would leave the event loop in disorder.
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
