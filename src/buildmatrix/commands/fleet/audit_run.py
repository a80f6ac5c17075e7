"""Run over repositories: each distinct file is an independent task.

Only files that need an unavailable index wait for it, within limits (`waiting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from buildmatrix.commands.fleet.answers import ResultInterner
from buildmatrix.commands.fleet.audit_model import AuditDone, AuditTask
from buildmatrix.commands.fleet.audit_work import make_undecided
from buildmatrix.commands.fleet.failing import WorkerKilledError, WorkError
from buildmatrix.commands.fleet.model import ClusterOptions, Work, WorkerSettings
from buildmatrix.commands.fleet.running import KILLED, RunOutcome, run_to_end, watch_cluster
from buildmatrix.commands.fleet.waiting import (
    RegistryUnavailableError,
    RegistryWaiting,
    WaitingOptions,
)
from buildmatrix.phrases import count
from buildmatrix.progress import Progress
from buildmatrix.reports.fleet.model import FleetResult, FleetWork
from buildmatrix.text import printable

if TYPE_CHECKING:
    from buildmatrix.commands.fleet.cluster import Cluster

#: Tasks per worker thread: the current one, and the next.
_TASKS_PER_THREAD = 2
_PRIORITY = 0


def audit(
    tasks: Sequence[AuditTask],
    settings: WorkerSettings,
    work: Work[AuditTask, AuditDone],
    options: ClusterOptions,
    *,
    progress: Progress,
    write: Callable[[FleetResult], None] = lambda _: None,
    waiting: WaitingOptions | None = None,
) -> RunOutcome:
    """Judge all files, as `run.scan` does for images. Raises `ComponentError`."""
    patience = RegistryWaiting(waiting or WaitingOptions(), progress.note)
    run = _AuditRun(tasks, settings, work, progress, write, patience)
    return asyncio.run(run_to_end(run, settings, options))


@dataclass(frozen=True, slots=True)
class _TriedTask:
    """Result of a file, for `RegistryWaiting`."""

    done: AuditDone

    @property
    def again(self) -> bool:
        """True if an index did not respond, and may later."""
        return bool(self.done.away)

    @property
    def denied(self) -> bool:
        """Always False: uv reports missing credentials as a final answer."""
        return False

    @property
    def wait(self) -> float:
        """Always 0: uv does not report rate limits."""
        return 0.0


@dataclass(slots=True)
class _AuditRun:
    """State of the run."""

    tasks: Sequence[AuditTask]
    settings: WorkerSettings
    work: Work[AuditTask, AuditDone]
    progress: Progress
    write: Callable[[FleetResult], None]
    waiting: RegistryWaiting
    results: list[FleetResult] = field(default_factory=list)
    alike: ResultInterner = field(default_factory=ResultInterner)
    missing: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    #: Completed files, and those of them with results from the store.
    done: int = 0
    stored: int = 0
    bytes_read: int = 0
    #: Tasks to repeat: they killed their worker, or may do better later.
    again: list[AuditTask] = field(default_factory=list)
    #: Index to the number of files undecided because it did not respond.
    away: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    tries: Iterator[int] = field(default_factory=itertools.count)
    #: Files of all tasks.
    files: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the files."""
        self.files = sum(len(task.holders) for task in self.tasks)

    @contextlib.asynccontextmanager
    async def start(self) -> AsyncIterator[bool]:
        """See `Run`."""
        yield bool(self.tasks)

    async def judge_all(self, cluster: Cluster) -> None:
        """Judge everything in parallel, then retry failures one by one."""
        self._count()
        await self._side_by_side(self.tasks, cluster, max(1, _TASKS_PER_THREAD * cluster.threads))
        if self.again:
            tasks, self.again = self.again, []
            self.retries = len(tasks)
            await self._side_by_side(tasks, cluster, 1, is_last=True)
        for host, files in sorted(self.away.items()):
            text = f"{host} gave no answer: {count(files, 'file')} undecided"
            self.notes[f"{text}; the same command later judges these, and nothing else again"] = (
                None
            )

    async def _side_by_side(
        self, tasks: Sequence[AuditTask], cluster: Cluster, number: int, *, is_last: bool = False
    ) -> None:
        """Judge files, `number` at a time; files that need an unavailable index wait for it."""
        queue, slots = iter(tasks), asyncio.Semaphore(number)
        waiting: list[asyncio.Task[None]] = []

        async def tried(task: AuditTask) -> _TriedTask:
            async with slots:
                return _TriedTask(await self._done(task, cluster))

        async def wait(task: AuditTask, done: AuditDone) -> None:
            with suppress(RegistryUnavailableError):
                done = (await self.waiting.ask(done.away, lambda: tried(task))).done
            self._take(task, done, is_last=is_last)

        async def take() -> None:
            for task in queue:
                done = (await tried(task)).done
                if done.away:
                    waiting.append(group.create_task(wait(task, done)))
                else:
                    self._take(task, done, is_last=is_last)

        async with watch_cluster(cluster) as group:
            await asyncio.gather(*(take() for _ in range(number)))
            await asyncio.gather(*waiting)

    async def _done(self, task: AuditTask, cluster: Cluster) -> AuditDone:
        """Return a worker's answer about a file; undecided if it dies or fails."""
        holder = task.holders[0]
        # Each try has its own key: Dask may still have the previous answer.
        key = printable(f"{holder.repository}/{holder.path} {task.backend} {next(self.tries)}")
        try:
            return await cluster.run_work(self.work, task, key=key, priority=_PRIORITY)
        except WorkError as error:
            return make_undecided(task, self.settings, str(error))
        except WorkerKilledError:
            return make_undecided(task, self.settings, KILLED.format("judging it"), again=True)

    def _take(self, task: AuditTask, done: AuditDone, *, is_last: bool) -> None:
        """Record a completed file, unless it is tried again at the end."""
        if done.again and not done.away and not is_last:
            self.again.append(task)
            return
        if done.away:
            self.away[done.away] += len(task.holders)
        self.stored += len(task.holders) if done.is_stored else 0
        self.bytes_read += done.bytes_read
        self.notes |= dict.fromkeys(done.notes)
        for item in done.results:
            result = self.alike(item)
            self.results.append(result)
            self.write(result)
        self.done += len(task.holders)
        self._count()

    def describe_rest(self) -> str:
        """See `run.Run`."""
        return f"{self.files - self.done} of {count(self.files, 'file')} not judged"

    def sum_cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
        """See `run.Run`."""
        return FleetWork(
            subjects=self.files,
            stored=self.stored,
            bytes_read=self.bytes_read,
            retries=self.waiting.repeated + self.retries + (cluster.repeated if cluster else 0),
            workers=cluster.workers if cluster else 0,
            seconds=seconds,
            busy=cluster.busy if cluster else 0.0,
        )

    def _count(self) -> None:
        self.progress.part("fleet", self.done, self.files, "files")
