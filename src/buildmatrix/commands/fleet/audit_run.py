"""A run over repositories: each distinct file is a task of its own, and waits for no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from buildmatrix.commands.fleet.audit_model import AuditDone, AuditTask
from buildmatrix.commands.fleet.audit_work import undecided
from buildmatrix.commands.fleet.cluster import Cluster
from buildmatrix.commands.fleet.failing import WorkerKilledError, WorkError
from buildmatrix.commands.fleet.model import ClusterOptions, Work, WorkerSettings
from buildmatrix.commands.fleet.running import KILLED, Outcome, to_end, watched
from buildmatrix.phrases import count
from buildmatrix.progress import Progress
from buildmatrix.reports.fleet.model import FleetResult, FleetWork
from buildmatrix.text import printable

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
) -> Outcome:
    """Judge all files, as `run.scan` does images. Raises `ComponentError`."""
    return asyncio.run(to_end(_AuditRun(tasks, settings, work, progress, write), settings, options))


@dataclass(slots=True)
class _AuditRun:
    """What is known so far."""

    tasks: Sequence[AuditTask]
    settings: WorkerSettings
    work: Work[AuditTask, AuditDone]
    progress: Progress
    write: Callable[[FleetResult], None]
    results: list[FleetResult] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    done: int = 0
    bytes_read: int = 0
    #: What has to be done again: it killed its worker, or may do better later.
    again: list[AuditTask] = field(default_factory=list)
    retries: int = 0
    #: Files of all tasks.
    files: int = field(init=False)

    def __post_init__(self) -> None:
        """Count what there is to do."""
        self.files = sum(len(task.holders) for task in self.tasks)

    async def all(self, cluster: Cluster) -> None:
        """Judge everything side by side, and once more, one by one, what came to nothing."""
        self._count()
        async with watched(cluster):
            queue = iter(self.tasks)
            slots = max(1, _TASKS_PER_THREAD * cluster.threads)
            await asyncio.gather(*(self._take(queue, cluster) for _ in range(slots)))
        if self.again:
            self.retries = len(self.again)
            async with watched(cluster):
                await self._take(iter(self.again), cluster, is_last=True)

    async def _take(
        self, tasks: Iterator[AuditTask], cluster: Cluster, *, is_last: bool = False
    ) -> None:
        for task in tasks:
            try:
                holder = task.holders[0]
                key = printable(f"{holder.repository}/{holder.path} {task.backend} {is_last}")
                done = await cluster.do(self.work, task, key=key, priority=_PRIORITY)
            except WorkError as error:
                done = undecided(task, self.settings, str(error))
            except WorkerKilledError:
                done = undecided(task, self.settings, KILLED.format("judging it"), again=True)
            if done.again and not is_last:
                self.again.append(task)
                continue
            self.bytes_read += done.bytes_read
            self.notes |= dict.fromkeys(done.notes)
            for result in done.results:
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
            bytes_read=self.bytes_read,
            retries=self.retries,
            workers=cluster.workers if cluster else 0,
            seconds=seconds,
            busy=cluster.busy if cluster else 0.0,
        )

    def _count(self) -> None:
        self.progress.part("fleet", self.done, self.files, "files")
