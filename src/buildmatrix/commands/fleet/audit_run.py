"""A run over repositories: each distinct file is a task of its own, and waits for no other.

An index that is away is waited for by those files alone that need it, within bounds (`waiting`).
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

from buildmatrix.commands.fleet.answers import Alike
from buildmatrix.commands.fleet.audit_model import AuditDone, AuditTask
from buildmatrix.commands.fleet.audit_work import undecided
from buildmatrix.commands.fleet.failing import WorkerKilledError, WorkError
from buildmatrix.commands.fleet.model import ClusterOptions, Work, WorkerSettings
from buildmatrix.commands.fleet.running import KILLED, Outcome, to_end, watched
from buildmatrix.commands.fleet.waiting import AwayError, Waiting, WaitingOptions
from buildmatrix.phrases import count
from buildmatrix.progress import Progress
from buildmatrix.reports.fleet.model import FleetResult, FleetWork
from buildmatrix.text import printable

if TYPE_CHECKING:
    from buildmatrix.commands.fleet.cluster import Cluster

#: Tasks that each worker has been given: the current task, and the next.
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
) -> Outcome:
    """Judge all files, as `run.scan` does images. Raises `ComponentError`."""
    patience = Waiting(waiting or WaitingOptions(), progress.note)
    run = _AuditRun(tasks, settings, work, progress, write, patience)
    return asyncio.run(to_end(run, settings, options))


@dataclass(frozen=True, slots=True)
class _Tried:
    """What came of a file, as `Waiting` sees it."""

    done: AuditDone

    @property
    def again(self) -> bool:
        """Whether an index gave no answer, and may later."""
        return bool(self.done.away)

    @property
    def denied(self) -> bool:
        """Never: uv says what an index wants, and that is no answer that may come later."""
        return False

    @property
    def wait(self) -> float:
        """Nothing: uv does not say for how long an index asks to be left alone."""
        return 0.0


@dataclass(slots=True)
class _AuditRun:
    """What is known so far."""

    tasks: Sequence[AuditTask]
    settings: WorkerSettings
    work: Work[AuditTask, AuditDone]
    progress: Progress
    write: Callable[[FleetResult], None]
    waiting: Waiting
    results: list[FleetResult] = field(default_factory=list)
    alike: Alike = field(default_factory=Alike)
    missing: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    #: Files that are through, and those of them whose results were in the store.
    done: int = 0
    stored: int = 0
    bytes_read: int = 0
    #: What has to be done again: it killed its worker, or may do better later.
    again: list[AuditTask] = field(default_factory=list)
    #: Index → files that are undecided because it gave no answer.
    away: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    tries: Iterator[int] = field(default_factory=itertools.count)
    #: Files of all tasks.
    files: int = field(init=False)

    def __post_init__(self) -> None:
        """Count what there is to do."""
        self.files = sum(len(task.holders) for task in self.tasks)

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[bool]:
        """See `Run`."""
        yield bool(self.tasks)

    async def all(self, cluster: Cluster) -> None:
        """Judge everything side by side, and once more, one by one, what came to nothing."""
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
        """Judge some files, so many at a time; what needs an index that is away waits for it."""
        queue, slots = iter(tasks), asyncio.Semaphore(number)
        waiting: list[asyncio.Task[None]] = []

        async def tried(task: AuditTask) -> _Tried:
            async with slots:
                return _Tried(await self._done(task, cluster))

        async def wait(task: AuditTask, done: AuditDone) -> None:
            with suppress(AwayError):
                done = (await self.waiting.answer(done.away, lambda: tried(task))).done
            self._take(task, done, is_last=is_last)

        async def take() -> None:
            for task in queue:
                done = (await tried(task)).done
                if done.away:
                    waiting.append(group.create_task(wait(task, done)))
                else:
                    self._take(task, done, is_last=is_last)

        async with watched(cluster) as group:
            await asyncio.gather(*(take() for _ in range(number)))
            await asyncio.gather(*waiting)

    async def _done(self, task: AuditTask, cluster: Cluster) -> AuditDone:
        """What a worker says of a file; undecided where it dies or fails."""
        holder = task.holders[0]
        # A key of its own for each try: Dask may still have the answer to the one before.
        key = printable(f"{holder.repository}/{holder.path} {task.backend} {next(self.tries)}")
        try:
            return await cluster.do(self.work, task, key=key, priority=_PRIORITY)
        except WorkError as error:
            return undecided(task, self.settings, str(error))
        except WorkerKilledError:
            return undecided(task, self.settings, KILLED.format("judging it"), again=True)

    def _take(self, task: AuditTask, done: AuditDone, *, is_last: bool) -> None:
        """A file is through, unless it gets another try at the end."""
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

    def left(self) -> str:
        """See `run.Run`."""
        return f"{self.files - self.done} of {count(self.files, 'file')} not judged"

    def cost(self, cluster: Cluster | None, seconds: float) -> FleetWork:
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
