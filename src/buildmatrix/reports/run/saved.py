"""A saved report, read back: to render it again, or to merge the shards of a CI matrix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from buildmatrix.errors import UsageError
from buildmatrix.inventory.model import Inventory, Stats, Unread
from buildmatrix.reports.run.model import SCHEMA, FixesTried, Report, TargetDifference, assemble
from buildmatrix.reports.run.revision_saved import SavedDifference, difference, merged
from buildmatrix.rules.model import Finding, TargetResult, Verdict
from buildmatrix.rules.registry import BY_CODE

_CODE = re.compile(r"BM\d{3}", re.ASCII)
#: Name of a rule that this version does not have.
_LATER = "unknown-rule"


@dataclass(frozen=True, slots=True)
class _Tool:
    version: str
    catalogue: str


@dataclass(frozen=True, slots=True)
class _Document:
    """What `reports.run.json` writes."""

    schema: str
    tool: _Tool
    subject: str
    targets: tuple[TargetResult, ...]
    distributions: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...]
    stats: Stats
    fixes: FixesTried | None = None
    diff: SavedDifference | None = None


def read(path: Path) -> Report:
    """A report that `--format json` wrote. Raises `UsageError` for anything else."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def parse(data: bytes, name: str) -> Report:
    """The same of the bytes of a file that is called `name`."""
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{name} is no report of buildmatrix ({error}); write a report with "
            "--format json=report.json, and name that file"
        ) from error
    if document.schema != SCHEMA:
        raise UsageError(
            f"{name} has the format {document.schema}, and this version reads {SCHEMA}; write it "
            "again with this version"
        )
    report = Report(
        subject=document.subject,
        catalogue=document.tool.catalogue,
        targets=document.targets,
        distributions=document.distributions,
        findings=document.findings,
        unread=document.unread,
        stats=document.stats,
        version=document.tool.version,
        fixes=document.fixes,
        difference=difference(document.diff) if document.diff is not None else None,
    )
    try:
        return _with_names(report)
    except ValueError as error:
        raise UsageError(f"{name} is no report of buildmatrix: {error}") from error


def _with_names(report: Report) -> Report:
    """The report with the names that its rules have: what a file says may be anything.

    Raises `ValueError` for what is no code of a rule.
    """
    told = report.difference
    if told is not None:
        told = replace(told, targets=tuple(map(_named_target, told.targets)))
    return replace(report, findings=tuple(map(_named, report.findings)), difference=told)


def _named_target(target: TargetDifference) -> TargetDifference:
    changes = target.comparison.findings
    if changes is None:
        return target
    named = tuple(
        replace(
            one,
            before=_named(one.before) if one.before is not None else None,
            after=_named(one.after) if one.after is not None else None,
        )
        for one in changes
    )
    return replace(target, comparison=replace(target.comparison, findings=named))


def _named(finding: Finding) -> Finding:
    if not _CODE.fullmatch(finding.rule):
        raise ValueError(f"{finding.rule[:40]!r} is no code of a rule")
    rule = BY_CODE.get(finding.rule)
    return replace(finding, name=rule.name if rule is not None else _LATER)


def merge(reports: Sequence[Report]) -> Report:
    """One report of several that are about different targets.

    One source that was judged for several backends is a target for each of them, and its name then
    says which. Raises `UsageError` when two reports are about one target: which of them counts?
    """
    if len(reports) == 1:
        return reports[0]
    seen = Counter((target.id, target.backend) for one in reports for target in one.targets)
    for (id, backend), count in seen.items():
        if count > 1:
            raise UsageError(
                f"{id} is in more than one report for {backend}; merge only reports of one run"
            )
    backends = Counter(id for id, _ in seen)
    reports = [
        _with_backends(report, {id for id, count in backends.items() if count > 1})
        for report in reports
    ]
    one = assemble(
        _joined(report.subject for report in reports),
        _joined(report.catalogue for report in reports),
        targets=[target for report in reports for target in report.targets],
        findings=[finding for report in reports for finding in report.findings],
        verdicts=[verdict for report in reports for verdict in report.distributions],
        inventories=[Inventory(unread=r.unread, stats=r.stats) for r in reports],
    )
    version = _joined(report.version for report in reports)
    return replace(one, version=version, difference=merged(reports))


def _with_backends(report: Report, ids: Collection[str]) -> Report:
    """A report in which the names of the targets `ids` say for which backend they were judged."""
    names = {
        target.id: f"{target.id} ({target.backend})"
        for target in report.targets
        if target.id in ids
    }
    return replace(
        report,
        targets=tuple(replace(one, id=names.get(one.id, one.id)) for one in report.targets),
        findings=tuple(
            replace(one, target=names.get(one.target, one.target)) for one in report.findings
        ),
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
