"""Read saved reports: render them again, apply other waivers, or merge shards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.acceptance import (
    FailOn,
    apply_baseline,
    apply_waivers,
    check_expired_or_unused_waiver,
    fails,
)
from buildmatrix.judge.model import Finding, Gate, GateState, TargetResult, sort_findings
from buildmatrix.judge.registry import rule_of
from buildmatrix.matrix.model import Waiver
from buildmatrix.reports import json_form
from buildmatrix.reports.run import Difference, Report, ReportShard, assemble, is_undecided

# Missing shards


def find_missing(shards: Collection[ReportShard]) -> Iterator[Unread]:
    """The shards whose reports are not there, for each matrix that was divided."""
    divisions: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        divisions.setdefault((shard.plan, shard.count), set()).add(shard.number)
    why = "it is not among these reports"
    if len(divisions) > 1:
        why += (
            ", of which some are of another division of the targets: all machines need the same "
            "specification, selection and --timings"
        )
    for (_, count), numbers in divisions.items():
        # A report may claim a million shards.
        absent = (number for number in range(1, count + 1) if number not in numbers)
        shown = ", ".join(f"{number}/{count}" for number in islice(absent, 10))
        more = sum(1 for _ in absent)
        if shown:
            rest = f" and {more} more" if more else ""
            yield Unread(f"the report of shard {shown}{rest}", why)


# Acceptance: other waivers and another baseline than the run had


def accept(
    report: Report,
    accepted: Sequence[Waiver],
    fingerprints: Collection[str],
    today: date,
    fail_on: FailOn,
) -> Report:
    """The report with `accepted` and a baseline's `fingerprints` applied to what is still open.

    Gates that only open findings had held back are passed then. A gate behind them that did not
    run has still not run.
    """
    if not accepted and not fingerprints:
        return report
    open_before = [finding for finding in report.findings if finding.waived is None]
    settled = iter(apply_baseline(apply_waivers(open_before, accepted, today), fingerprints))
    findings = tuple(
        finding if finding.waived is not None else next(settled) for finding in report.findings
    )
    stale = check_expired_or_unused_waiver(findings, accepted, today, judged=())
    changed = replace(report, findings=sort_findings((*findings, *stale)))
    return replace(
        changed,
        targets=tuple(_update_gates(target, report, changed, fail_on) for target in report.targets),
    )


def list_gone(report: Report, before: Report) -> Report:
    """Return the report with the baseline's findings that are gone.

    Only of backends of which this run judged all that the baseline did, at the same gates: what a
    run did not get to is not gone.
    """
    present = {finding.fingerprint for finding in report.findings}
    now, then = find_judged_gates(report), find_judged_gates(before)
    gone = {
        finding.fingerprint: finding
        for finding in before.findings
        if finding.fingerprint not in present
        and None not in now.get(finding.backend, {None})
        and now[finding.backend] >= then.get(finding.backend, set()) - {None}
    }
    return replace(report, gone=sort_findings(gone.values()))


def find_judged_gates(report: Report) -> dict[str, set[Gate | None]]:
    """Backend -> the gates that judged all of its targets; None for what is not known."""
    gates_of: dict[str, set[Gate | None]] = {}
    for target in report.targets:
        gates: set[Gate | None] = {
            gate for gate in ("lock", "scan") if target.gates.get(gate) in ("passed", "failed")
        }
        if target.error is not None or "undecided" in target.gates.values():
            gates.add(None)
        held = gates_of.setdefault(target.backend, gates)
        gates_of[target.backend] = (held & gates) | ({None} & (held | gates))
    return gates_of


def _update_gates(
    target: TargetResult, before: Report, after: Report, fail_on: FailOn
) -> TargetResult:
    was = [finding for finding in before.findings if finding.is_about(target.id)]
    now = [finding for finding in after.findings if finding.is_about(target.id)]
    if target.error is not None or not any(fails(finding, fail_on) for finding in was):
        return target
    if any(fails(finding, fail_on) for finding in now):
        return target
    state: GateState = "undecided" if is_undecided(Report("", findings=tuple(now))) else "passed"
    gates: dict[Gate, GateState] = dict(target.gates)
    for gate in ("lock", "scan"):
        if gates.get(gate) == "failed":
            gates[gate] = state
    return replace(target, gates=gates)


# Reading and merging


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
            targets=tuple(
                replace(target, findings=target.findings and target.findings.each(_name_by_rule))
                for target in report.diff.targets
            ),
            accepts=_name_all(report.diff.accepts),
        )
        return replace(
            report,
            findings=_name_all(report.findings),
            diff=difference,
            gone=None if report.gone is None else _name_all(report.gone),
        )
    except ValueError as error:
        raise UsageError(
            f"{name} is not a report of buildmatrix ({error}); write a report with "
            "--format json=report.json, and name that file"
        ) from error


def _name_by_rule(finding: Finding) -> Finding:
    """The finding with the name that its rule has: what a file says may be anything.

    Raises `ValueError` for what is not a rule code.
    """
    if not _CODE.fullmatch(finding.rule):
        raise ValueError(f"{finding.rule[:40]!r} is not a rule code")
    return replace(finding, name=rule_of(finding.rule).name)


def _name_all(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(map(_name_by_rule, findings))


def merge(reports: Sequence[Report]) -> Report:
    """One report of several that are about different targets.

    One source that was judged for several backends is a target for each of them, and its name then
    says which. Of a matrix that was divided, shards whose reports are not there count as not read.
    Raises `UsageError` when two reports are about one target (which of them counts?), and
    `UndecidedError` where they are shards.
    """
    shards = tuple(shard for report in reports for shard in report.shards or ())
    for shard, count in Counter(shards).items():
        if count > 1:
            raise UndecidedError(
                f"shard {shard.number}/{shard.count} is in more than one of these reports; leave "
                "out those that do not count"
            )
    merged = reports[0] if len(reports) == 1 else _merge_reports(reports)
    # What was missing in a report that was merged before may be here now.
    before = {item for report in reports for item in find_missing(report.shards or ())}
    unread = [item for item in merged.unread if item not in before]
    return replace(
        merged,
        unread=tuple(
            sorted({*unread, *find_missing(shards)}, key=lambda item: (item.path, item.why))
        ),
        shards=tuple(sorted(shards, key=lambda shard: (shard.plan, shard.number))) or None,
    )


def _merge_reports(reports: Sequence[Report]) -> Report:
    seen = Counter((target.id, target.backend) for report in reports for target in report.targets)
    for (id, backend), count in seen.items():
        if count == 1:
            continue
        about = [
            report
            for report in reports
            if any((target.id, target.backend) == (id, backend) for target in report.targets)
        ]
        if all(report.shards for report in about):
            raise UndecidedError(
                f"{id} is in more than one shard, so these reports are of different divisions of "
                "the targets: all machines need the same specification, selection and --timings"
            )
        raise UsageError(
            f"{id} is in more than one report for {backend}; merge only reports of one run"
        )
    backends = Counter(id for id, _ in seen)
    reports = [
        _with_backends(report, {id for id, count in backends.items() if count > 1})
        for report in reports
    ]
    merged = assemble(
        _join(report.subject for report in reports),
        _join(report.tool.catalogue for report in reports),
        targets=[target for report in reports for target in report.targets],
        findings=[finding for report in reports for finding in report.findings],
        verdicts=[verdict for report in reports for verdict in report.distributions],
        inventories=[Inventory(unread=r.unread, stats=r.stats) for r in reports],
        project=_join(report.project for report in reports if report.project) or None,
    )
    tool = replace(merged.tool, version=_join(report.tool.version for report in reports))
    return replace(
        merged, tool=tool, diff=_merge_differences(reports), gone=_merge_gone(reports, merged)
    )


def _with_backends(report: Report, ids: Collection[str]) -> Report:
    """A report in which the names of the targets `ids` say for which backend they were judged."""
    names = {
        target.id: f"{target.id} ({target.backend})"
        for target in report.targets
        if target.id in ids
    }

    def rename(finding: Finding) -> Finding:
        return replace(finding, target=names.get(finding.target, finding.target))

    return replace(
        report,
        targets=tuple(
            replace(result, id=names.get(result.id, result.id)) for result in report.targets
        ),
        findings=tuple(map(rename, report.findings)),
        gone=None if report.gone is None else tuple(map(rename, report.gone)),
        distributions=tuple(
            replace(verdict, targets=tuple(names.get(id, id) for id in verdict.targets))
            for verdict in report.distributions
        ),
    )


def _join(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _merge_gone(reports: Sequence[Report], merged: Report) -> tuple[Finding, ...] | None:
    """Return the findings that one report calls gone and none has; None if none was compared.

    Where another report did not get as far with that backend, it may still be there.
    """
    if all(report.gone is None for report in reports):
        return None
    present = {finding.fingerprint for finding in merged.findings}
    now = find_judged_gates(merged)
    gone: dict[str, Finding] = {}
    for report in reports:
        then = find_judged_gates(report)
        for finding in report.gone or ():
            gates = now.get(finding.backend, {None})
            is_judged = None not in gates and gates >= then.get(finding.backend, set())
            if is_judged and finding.fingerprint not in present:
                gone.setdefault(finding.fingerprint, finding)
    return sort_findings(gone.values())


def _merge_differences(reports: Sequence[Report]) -> Difference | None:
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
