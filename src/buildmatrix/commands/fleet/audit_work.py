"""What a worker does for a file of a repository: what it would install is judged, on the index.

What the index, or the bytes of a file, do is part of the answer: nothing is raised for it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.commands.audit.run import audit
from buildmatrix.commands.audit.subject import judge_for
from buildmatrix.commands.fleet.audit_model import AuditDone, AuditTask, Holder
from buildmatrix.commands.fleet.context import WorkerContext, context_of
from buildmatrix.commands.fleet.declaring import SPECIFICATION
from buildmatrix.commands.fleet.failing import failure_of
from buildmatrix.commands.fleet.judging import shortened, vendor_bytes
from buildmatrix.commands.fleet.kept_audits import KeptAudits, answer_of
from buildmatrix.commands.fleet.model import WorkerSettings
from buildmatrix.commands.fleet.repository_files import write_files
from buildmatrix.errors import BuildmatrixError, UndecidedError
from buildmatrix.index.client import Client
from buildmatrix.index.wheels import WheelReader
from buildmatrix.judge import Judge
from buildmatrix.locks.committed import is_lock
from buildmatrix.locks.uv_errors import Unreached
from buildmatrix.progress import Silent
from buildmatrix.reports.fleet.model import FleetFinding, FleetResult, FleetState
from buildmatrix.reports.run.model import Report, leaves_open, unread
from buildmatrix.rules.composition import Composition
from buildmatrix.rules.model import Finding, TargetResult
from buildmatrix.scratch import scratch
from buildmatrix.sources.resolution.resolved import Resolved, Unresolved, resolve_sources
from buildmatrix.spec.bare import bare_spec
from buildmatrix.spec.load import load_spec
from buildmatrix.spec.model import Spec
from buildmatrix.text import printable

#: Wheels that one worker reads at a time: there are other workers.
_JOBS = 4


def audit_file(settings: WorkerSettings, task: AuditTask) -> AuditDone:
    """The results of a file for all who hold it, one for each target or backend."""
    context = context_of(settings)
    started = time.monotonic()
    folder = ""
    try:
        if task.error:
            raise UndecidedError(task.error)
        files = {name: zlib.decompress(data) for name, data in task.files.items()}
        kept = KeptAudits(context.cache, settings, task, files)
        judged = _Judged(kept.load(), is_stored=True)
        if not judged.results:
            with scratch("fleet") as top:
                folder = str(top)
                write_files(top, files)
                judged = _judged(context, task, kept, top)
        if not judged.results:
            raise UndecidedError("it has no target")
    except Exception as error:
        failure = failure_of(error)
        return replace(
            undecided(task, settings, _inside(failure.text, folder), again=failure.again),
            seconds=round(time.monotonic() - started, 3),
            notes=context.notes(),
        )
    return AuditDone(
        results=tuple(_held(item, holder) for item in judged.results for holder in task.holders),
        bytes_read=judged.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        again=bool(judged.away),
        away=judged.away,
        is_stored=judged.is_stored,
        notes=context.notes(),
    )


def undecided(
    task: AuditTask, settings: WorkerSettings, why: str, *, again: bool = False
) -> AuditDone:
    """What is handed back of a file that could not be judged."""
    result = FleetResult(
        kind="lock",
        repository="",
        platform=settings.platform,
        backend=task.backend,
        state="undecided",
        error=why,
    )
    return AuditDone(results=tuple(_held(result, holder) for holder in task.holders), again=again)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is said of a file, without what is one repository's own."""

    results: tuple[FleetResult, ...]
    bytes_read: int = 0
    #: See `AuditDone`.
    away: str = ""
    is_stored: bool = False


def _judged(context: WorkerContext, task: AuditTask, kept: KeptAudits, top: Path) -> _Judged:
    """Judge a file as far as no earlier run has judged it; `top` has it with all that it reads."""
    settings = context.settings
    spec: Spec | None = None
    if _is_specification(task):
        spec = load_spec(top / task.path, backends=lambda files: load(files).backends)
    results = resolve_sources(
        () if spec is not None else (f"{_kind(task.path)}:{task.path}",),
        spec,
        backends=() if spec is not None else (task.backend,),
        platform=None if spec is not None else settings.platform,
        root=top if spec is None else spec.root,
        cache=context.cache,
        progress=Silent(),
        jobs=1,
    )
    answer = answer_of(results, str(top))
    if answer and (stored := kept.load(answer)):
        return _Judged(stored, is_stored=True)
    if spec is not None:
        judge = judge_for(spec, (), "error", settings.today, ())
    else:
        targets = [item.target for item in results if isinstance(item, Resolved)]
        judge = Judge(bare_spec(*targets), "error", settings.today, catalogue=context.catalogue)
    with Client(cache=context.cache) as client:
        reader = WheelReader(client, context.cache)
        report = audit(task.path, results, reader, judge, Silent(), jobs=_JOBS)
    judged = tuple(_results(report, spec, task, settings, str(top)))
    away = [host for item in results for host in _away(item)]
    packages = [
        package for item in results if isinstance(item, Resolved) for package in item.lock.packages
    ]
    names = {package.name for package in packages}
    # Of a distribution it is said what an installer adds to it; anything else was not read.
    if any(item.path not in names for item in report.unread):
        away += sorted(client.away)
    # What has no hash may be something else tomorrow.
    elif not away and all(wheel.sha256 for package in packages for wheel in package.wheels):
        kept.save(judged, answer, spec.waivers if spec is not None else ())
    return _Judged(judged, report.stats.bytes_read, away[0] if away else "")


def _away(result: Resolved | BuildmatrixError) -> tuple[str, ...]:
    """The indexes that gave no answer about a target, and may later."""
    if isinstance(result, Resolved):
        return result.lock.away
    error = result.error if isinstance(result, Unresolved) else result
    return (error.host,) if isinstance(error, Unreached) else ()


def _is_specification(task: AuditTask) -> bool:
    return task.path.rpartition("/")[2] == SPECIFICATION


def _kind(path: str) -> str:
    """The kind of SOURCE that a file is."""
    name = path.rpartition("/")[2]
    if is_lock(name):
        return "lock"
    return "pyproject" if name == "pyproject.toml" else "requirements"


def _results(
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
            state=_state(target, is_undecided),
            error=printable(_inside(target.error, top)) if target.error else None,
            left_out=printable(_inside(target.left_out, top)),
            installed=totals.installed if totals else 0,
            unusable=totals.foreign_installed if totals else 0,
            download=totals.download if totals else 0,
            unusable_download=totals.foreign_download if totals else 0,
            vendors=vendor_bytes(composition) if composition else (),
            findings=tuple(dict.fromkeys(_finding(item, composition, top) for item in findings)),
        )


def _finding(finding: Finding, composition: Composition | None, top: str) -> FleetFinding:
    """A finding, with places as they are in the repository."""
    held = shortened(finding, composition)
    return replace(
        held,
        path=_inside(held.path, top) if held.path else held.path,
        message=_inside(held.message, top),
        fix=_inside(held.fix, top) if held.fix else held.fix,
    )


def _inside(text: str, top: str) -> str:
    """A text without the folder of this machine that the files lay in."""
    return text.replace(f"{top}/", "")


def _state(target: TargetResult, is_open: bool) -> FleetState:
    """What a target comes to; of a file that cannot be read nothing is decided."""
    gate = target.gates.get("lock")
    if target.error is not None or gate not in ("passed", "failed"):
        return "undecided"
    if gate == "failed":
        return "failed"
    return "undecided" if is_open else "passed"


def _held(result: FleetResult, holder: Holder) -> FleetResult:
    """`result` with what is one repository's own."""
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
