"""Work on a file of a repository: its resolved distributions are judged on the index.

Failures of the index or of the file are part of the answer; nothing is raised for them.
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
from buildmatrix.commands.fleet.context import WorkerContext, find_context
from buildmatrix.commands.fleet.declaring import SPECIFICATION
from buildmatrix.commands.fleet.failing import make_failure
from buildmatrix.commands.fleet.judging import shorten_finding, sum_vendor_bytes
from buildmatrix.commands.fleet.kept_audits import CachedAudits, summarize_answer
from buildmatrix.commands.fleet.model import WorkerSettings
from buildmatrix.commands.fleet.repository_files import write_files
from buildmatrix.errors import BuildmatrixError, UndecidedError
from buildmatrix.index.client import Client
from buildmatrix.index.wheels import WheelReader
from buildmatrix.judge import Judge
from buildmatrix.locks.committed import is_lock
from buildmatrix.locks.uv import Unreached
from buildmatrix.progress import Silent
from buildmatrix.reports.fleet.model import FleetFinding, FleetResult, FleetState
from buildmatrix.reports.run.model import Report, unread
from buildmatrix.rules.acceptance import leaves_open
from buildmatrix.rules.composition import Composition
from buildmatrix.rules.model import Finding, TargetResult
from buildmatrix.scratch import scratch
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources
from buildmatrix.spec.bare import bare_spec
from buildmatrix.spec.load import load_spec
from buildmatrix.spec.model import Spec
from buildmatrix.text import printable

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
        judged = _JudgedFile(kept.load(), is_stored=True)
        if not judged.results:
            with scratch("fleet") as top:
                folder = str(top)
                write_files(top, files)
                judged = _judge(context, task, kept, top)
        if not judged.results:
            raise UndecidedError("it has no target")
    except Exception as error:
        failure = make_failure(error)
        return replace(
            make_undecided(
                task, settings, _remove_folder(failure.text, folder), again=failure.again
            ),
            seconds=round(time.monotonic() - started, 3),
            notes=context.notes(),
        )
    return AuditDone(
        results=tuple(
            _add_holder(item, holder) for item in judged.results for holder in task.holders
        ),
        bytes_read=judged.bytes_read,
        seconds=round(time.monotonic() - started, 3),
        again=bool(judged.away),
        away=judged.away,
        is_stored=judged.is_stored,
        notes=context.notes(),
    )


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
        results=tuple(_add_holder(result, holder) for holder in task.holders), again=again
    )


@dataclass(frozen=True, slots=True)
class _JudgedFile:
    """Results of a file, without data of a repository."""

    results: tuple[FleetResult, ...]
    bytes_read: int = 0
    #: See `AuditDone`.
    away: str = ""
    is_stored: bool = False


def _judge(context: WorkerContext, task: AuditTask, kept: CachedAudits, top: Path) -> _JudgedFile:
    """Judge a file unless an earlier run did; `top` has it with all files that it reads."""
    settings = context.settings
    spec: Spec | None = None
    if _is_specification(task):
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
        return _JudgedFile(stored, is_stored=True)
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
    return _JudgedFile(judged, report.stats.bytes_read, away[0] if away else "")


def _find_unavailable(result: Resolved | BuildmatrixError) -> tuple[str, ...]:
    """Return the indexes that did not respond about a target, and may later."""
    if isinstance(result, Resolved):
        return result.lock.away
    error = result.error if isinstance(result, Unresolved) else result
    return (error.host,) if isinstance(error, Unreached) else ()


def _is_specification(task: AuditTask) -> bool:
    return task.path.rpartition("/")[2] == SPECIFICATION


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
