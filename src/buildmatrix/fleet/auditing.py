"""Audit repositories: each distinct file is an independent task, judged on the index."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.text import count, printable
from buildmatrix.catalogue.load import load
from buildmatrix.commands.audit import audit, judge_for
from buildmatrix.fleet.context import WorkerContext, find_context
from buildmatrix.fleet.declaring import SPECIFICATION, CachedAudits, summarize_answer
from buildmatrix.fleet.judging import shorten_finding, sum_vendor_bytes
from buildmatrix.fleet.model import (
    AuditDone,
    AuditTask,
    ClusterOptions,
    Holder,
    RegistryUnavailableError,
    RegistryWaiting,
    WaitingOptions,
    Work,
    WorkerKilledError,
    WorkError,
    WorkerSettings,
    make_failure,
)
from buildmatrix.fleet.repository_files import write_files
from buildmatrix.fleet.running import KILLED, Run, RunOutcome, run_to_end, watch_cluster
from buildmatrix.judge.acceptance import leaves_open
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.locks.committed import is_lock
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.uv import Unreached
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec, bare_spec
from buildmatrix.reports.fleet import FleetFinding, FleetResult, FleetState
from buildmatrix.reports.run import Report, unread
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources

if TYPE_CHECKING:
    from buildmatrix.fleet.cluster import Cluster


# A task: one file, whose resolved distributions are judged on the index


#: Wheels that one worker reads at a time, beside other workers.
_JOBS = 4


def audit_file(settings: WorkerSettings, task: AuditTask) -> AuditDone:
    """Return the results of a file for all its holders, one per target or backend."""
    context = find_context(settings)
    started = time.monotonic()
    folder = ""
    try:
        if task.error:
            raise UndecidedError(task.error)
        files = {name: zlib.decompress(data) for name, data in task.files.items()}
        kept = CachedAudits(context.cache, settings, task, files)
        judged = AuditDone(results=kept.load(), is_stored=True)
        if not judged.results:
            with scratch("fleet") as top:
                folder = str(top)
                write_files(top, files)
                judged = _judge(context, task, kept, top)
        if not judged.results:
            raise UndecidedError("it has no target")
        done = replace(
            judged,
            results=tuple(
                _add_holder(item, holder) for item in judged.results for holder in task.holders
            ),
            again=bool(judged.away),
        )
    except Exception as error:
        failure = make_failure(error)
        why = _remove_folder(failure.text, folder)
        done = make_undecided(task, settings, why, again=failure.again)
    return replace(done, seconds=round(time.monotonic() - started, 3), notes=context.notes())


def make_undecided(
    task: AuditTask, settings: WorkerSettings, why: str, *, again: bool = False
) -> AuditDone:
    """Return the answer for a file that could not be judged."""
    result = FleetResult(
        kind="lock",
        repository="",
        platform=settings.platform,
        backend=task.backend,
        state="undecided",
        error=why,
    )
    return AuditDone(
        results=tuple(_add_holder(result, holder) for holder in task.holders), again_later=again
    )


def _judge(context: WorkerContext, task: AuditTask, kept: CachedAudits, top: Path) -> AuditDone:
    """Judge a file unless an earlier run did; the results have no data of a repository.

    `top` has the file with all files that it reads.
    """
    settings = context.settings
    spec: Spec | None = None
    if task.path.rpartition("/")[2] == SPECIFICATION:
        spec = load_spec(top / task.path, backends=lambda files: load(files).backends)
    results = resolve_sources(
        () if spec is not None else (f"{_source_kind(task.path)}:{task.path}",),
        spec,
        backends=() if spec is not None else (task.backend,),
        platform=None if spec is not None else settings.platform,
        root=top if spec is None else spec.root,
        cache=context.cache,
        progress=Silent(),
        jobs=1,
    )
    answer = summarize_answer(results, str(top))
    if answer and (stored := kept.load(answer)):
        return AuditDone(results=stored, is_stored=True)
    if spec is not None:
        judge = judge_for(spec, (), "error", settings.today, ())
    else:
        targets = [item.target for item in results if isinstance(item, Resolved)]
        judge = Judge(bare_spec(*targets), "error", settings.today, catalogue=context.catalogue)
    with Client(cache=context.cache) as client:
        reader = WheelReader(client, context.cache)
        report = audit(task.path, results, reader, judge, Silent(), jobs=_JOBS)
    judged = tuple(_make_results(report, spec, task, settings, str(top)))
    away = [host for item in results for host in _find_unavailable(item)]
    packages = [
        package for item in results if isinstance(item, Resolved) for package in item.lock.packages
    ]
    names = {package.name for package in packages}
    # Distribution names mark additions of an installer; anything else was not read.
    if any(item.path not in names for item in report.unread):
        away += sorted(client.away)
    # Wheels without a hash may change.
    elif not away and all(wheel.sha256 for package in packages for wheel in package.wheels):
        kept.save(judged, answer, spec.waivers if spec is not None else ())
    return AuditDone(
        results=judged, bytes_read=report.stats.bytes_read, away=away[0] if away else ""
    )


def _find_unavailable(result: Resolved | BuildmatrixError) -> tuple[str, ...]:
    """Return the indexes that did not respond about a target, and may later."""
    if isinstance(result, Resolved):
        return result.lock.away
    error = result.error if isinstance(result, Unresolved) else result
    return (error.host,) if isinstance(error, Unreached) else ()


def _source_kind(path: str) -> str:
    """Return the kind of SOURCE of a file."""
    name = path.rpartition("/")[2]
    if is_lock(name):
        return "lock"
    return "pyproject" if name == "pyproject.toml" else "requirements"


def _make_results(
    report: Report, spec: Spec | None, task: AuditTask, settings: WorkerSettings, top: str
) -> Iterator[FleetResult]:
    is_open = bool(unread(report))
    platforms = {target.id: target.platform for target in spec.targets} if spec else {}
    for target in report.targets:
        findings = [item for item in report.findings if item.is_about(target.id)]
        is_undecided = is_open or any(map(leaves_open, findings))
        totals, composition = target.audit, target.composition
        yield FleetResult(
            kind="lock",
            repository="",
            names=(target.id,) if spec is not None else (),
            platform=platforms.get(target.id, settings.platform),
            backend=target.backend if spec is not None else task.backend,
            state=_find_state(target, is_undecided),
            error=printable(_remove_folder(target.error, top)) if target.error else None,
            left_out=printable(_remove_folder(target.left_out, top)),
            installed=totals.installed if totals else 0,
            unusable=totals.foreign_installed if totals else 0,
            download=totals.download if totals else 0,
            unusable_download=totals.foreign_download if totals else 0,
            vendors=sum_vendor_bytes(composition) if composition else (),
            findings=tuple(
                dict.fromkeys(_make_finding(item, composition, top) for item in findings)
            ),
        )


def _make_finding(finding: Finding, composition: Composition | None, top: str) -> FleetFinding:
    """Return a finding with paths as in the repository."""
    held = shorten_finding(finding, composition)
    return replace(
        held,
        path=_remove_folder(held.path, top) if held.path else held.path,
        message=_remove_folder(held.message, top),
        fix=_remove_folder(held.fix, top) if held.fix else held.fix,
    )


def _remove_folder(text: str, top: str) -> str:
    """Remove the local folder of the files from a text."""
    return text.replace(f"{top}/", "")


def _find_state(target: TargetResult, is_open: bool) -> FleetState:
    """Return the state of a target; nothing is decided about an unreadable file."""
    gate = target.gates.get("lock")
    if target.error is not None or gate not in ("passed", "failed"):
        return "undecided"
    if gate == "failed":
        return "failed"
    return "undecided" if is_open else "passed"


def _add_holder(result: FleetResult, holder: Holder) -> FleetResult:
    """Return `result` with the data of one repository."""
    is_target = bool(result.names)
    return replace(
        result,
        repository=holder.repository,
        names=(printable(holder.path), *result.names),
        digest=holder.commit,
        created=holder.created,
        backend_by="specification" if is_target else holder.backend_by,
        places=(holder.place,),
        owner=holder.owner,
    )


# The run. Only files that need an unavailable index wait for it, within limits (`failures`).


#: Tasks per worker thread: the current one, and the next.
_TASKS_PER_THREAD = 2
_PRIORITY = 0


def audit_files(
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
    run = _AuditRun(
        tasks=tasks,
        settings=settings,
        work=work,
        progress=progress,
        write=write,
        waiting=RegistryWaiting(waiting or WaitingOptions(), progress.note),
        total=sum(len(task.holders) for task in tasks),
        noun="file",
    )
    return asyncio.run(run_to_end(run, settings, options))


@dataclass(kw_only=True)
class _AuditRun(Run):
    """State of the run."""

    tasks: Sequence[AuditTask]
    work: Work[AuditTask, AuditDone]
    #: Tasks to repeat: they killed their worker, or may do better later.
    again: list[AuditTask] = field(default_factory=list)
    #: Index to the number of files undecided because it did not respond.
    away: Counter[str] = field(default_factory=Counter)
    tries: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.asynccontextmanager
    async def start(self) -> AsyncIterator[bool]:
        """See `Run`."""
        yield bool(self.tasks)

    async def judge_all(self, cluster: Cluster) -> None:
        """Judge everything in parallel, then retry failures one by one."""
        self.count_done()
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

        async def tried(task: AuditTask) -> AuditDone:
            async with slots:
                return await self._done(task, cluster)

        async def wait(task: AuditTask, done: AuditDone) -> None:
            with contextlib.suppress(RegistryUnavailableError):
                done = await self.waiting.ask(done.away, lambda: tried(task))
            self._take(task, done, is_last=is_last)

        async def take() -> None:
            for task in queue:
                done = await tried(task)
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
        if done.again_later and not is_last:
            self.again.append(task)
            return
        if done.away:
            self.away[done.away] += len(task.holders)
        self.stored += len(task.holders) if done.is_stored else 0
        self.bytes_read += done.bytes_read
        self.notes |= dict.fromkeys(done.notes)
        for item in done.results:
            self.add(self.alike(item))
        self.count_done(len(task.holders))
