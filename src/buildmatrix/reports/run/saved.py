"""A saved report, read back: to render it again, or to merge the shards of a CI matrix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports import json_form
from buildmatrix.reports.run.acceptance import judged
from buildmatrix.reports.run.model import Difference, Report, TargetDifference, assemble
from buildmatrix.reports.run.shards import check_once, missing
from buildmatrix.rules.model import Finding, in_order
from buildmatrix.rules.registry import rule_of

_CODE = re.compile(r"BM\d{3}", re.ASCII)


def read(path: Path) -> Report:
    """A report that `--format json` wrote. Raises `UsageError` for anything else."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def parse(data: bytes, name: str) -> Report:
    """The same of the bytes of a file that is called `name`."""
    try:
        report = json_form.parse(data, Report)
        difference = report.diff and replace(
            report.diff,
            targets=tuple(map(_named_target, report.diff.targets)),
            accepts=tuple(map(_named, report.diff.accepts)),
        )
        gone = None if report.gone is None else tuple(map(_named, report.gone))
        return replace(
            report, findings=tuple(map(_named, report.findings)), diff=difference, gone=gone
        )
    except ValueError as error:
        raise UsageError(
            f"{name} is not a report of buildmatrix ({error}); write a report with "
            "--format json=report.json, and name that file"
        ) from error


def _named_target(target: TargetDifference) -> TargetDifference:
    changes = target.findings
    return replace(target, findings=changes.each(_named) if changes is not None else None)


def _named(finding: Finding) -> Finding:
    """The finding with the name that its rule has: what a file says may be anything.

    Raises `ValueError` for what is not a rule code.
    """
    if not _CODE.fullmatch(finding.rule):
        raise ValueError(f"{finding.rule[:40]!r} is not a rule code")
    return replace(finding, name=rule_of(finding.rule).name)


def merge(reports: Sequence[Report]) -> Report:
    """One report of several that are about different targets.

    One source that was judged for several backends is a target for each of them, and its name then
    says which. Of a matrix that was divided, shards whose reports are not there count as not read.
    Raises `UsageError` when two reports are about one target (which of them counts?), and
    `UndecidedError` where they are shards.
    """
    shards = tuple(shard for report in reports for shard in report.shards or ())
    check_once(shards)
    merged = reports[0] if len(reports) == 1 else _merged_reports(reports)
    # What was missing in a report that was merged before may be here now.
    before = {item for report in reports for item in missing(report.shards or ())}
    unread = [item for item in merged.unread if item not in before]
    return replace(
        merged,
        unread=tuple(sorted({*unread, *missing(shards)}, key=lambda item: (item.path, item.why))),
        shards=tuple(sorted(shards, key=lambda shard: (shard.plan, shard.number))) or None,
    )


def _merged_reports(reports: Sequence[Report]) -> Report:
    seen = Counter((target.id, target.backend) for report in reports for target in report.targets)
    for (id, backend), count in seen.items():
        if count > 1:
            _refuse(id, backend, [report for report in reports if _has(report, id, backend)])
    backends = Counter(id for id, _ in seen)
    reports = [
        _with_backends(report, {id for id, count in backends.items() if count > 1})
        for report in reports
    ]
    merged = assemble(
        _joined(report.subject for report in reports),
        _joined(report.tool.catalogue for report in reports),
        targets=[target for report in reports for target in report.targets],
        findings=[finding for report in reports for finding in report.findings],
        verdicts=[verdict for report in reports for verdict in report.distributions],
        inventories=[Inventory(unread=r.unread, stats=r.stats) for r in reports],
    )
    tool = replace(merged.tool, version=_joined(report.tool.version for report in reports))
    return replace(merged, tool=tool, diff=_merged(reports), gone=_gone(reports, merged))


def _has(report: Report, id: str, backend: str) -> bool:
    return any((target.id, target.backend) == (id, backend) for target in report.targets)


def _refuse(id: str, backend: str, reports: Collection[Report]) -> NoReturn:
    """Say why reports that are about one target cannot be merged."""
    if all(report.shards for report in reports):
        raise UndecidedError(
            f"{id} is in more than one shard, so these reports are of different divisions of the "
            "targets: all machines need the same specification, selection and --timings"
        )
    raise UsageError(
        f"{id} is in more than one report for {backend}; merge only reports of one run"
    )


def _with_backends(report: Report, ids: Collection[str]) -> Report:
    """A report in which the names of the targets `ids` say for which backend they were judged."""
    names = {
        target.id: f"{target.id} ({target.backend})"
        for target in report.targets
        if target.id in ids
    }

    def named(finding: Finding) -> Finding:
        return replace(finding, target=names.get(finding.target, finding.target))

    return replace(
        report,
        targets=tuple(
            replace(result, id=names.get(result.id, result.id)) for result in report.targets
        ),
        findings=tuple(map(named, report.findings)),
        gone=None if report.gone is None else tuple(map(named, report.gone)),
        distributions=tuple(
            replace(verdict, targets=tuple(names.get(id, id) for id in verdict.targets))
            for verdict in report.distributions
        ),
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _gone(reports: Sequence[Report], merged: Report) -> tuple[Finding, ...] | None:
    """Return the findings that one report calls gone and none has; None if none was compared.

    Where another report did not get as far with that backend, it may still be there.
    """
    if all(report.gone is None for report in reports):
        return None
    present = {finding.fingerprint for finding in merged.findings}
    now = judged(merged)
    gone: dict[str, Finding] = {}
    for report in reports:
        then = judged(report)
        for finding in report.gone or ():
            gates = now.get(finding.backend, {None})
            is_judged = None not in gates and gates >= then.get(finding.backend, set())
            if is_judged and finding.fingerprint not in present:
                gone.setdefault(finding.fingerprint, finding)
    return in_order(gone.values())


def _merged(reports: Sequence[Report]) -> Difference | None:
    """The difference of several reports; None where none of them has one.

    Raises `UsageError` when they were not compared with the same commit.
    """
    diffs = [report.diff for report in reports]
    differences = [difference for difference in diffs if difference is not None]
    if not differences:
        return None
    if len(differences) < len(diffs) or len({difference.commit for difference in differences}) > 1:
        raise UsageError(
            "not all of these reports are compared with the same commit; merge only reports "
            "of one run"
        )
    return replace(
        differences[0],
        targets=tuple(target for difference in differences for target in difference.targets),
        notes=tuple(dict.fromkeys(note for difference in differences for note in difference.notes)),
        accepts=tuple(finding for difference in differences for finding in difference.accepts),
    )
