"""Data of a run's report. Formats are pure functions of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from buildmatrix import __version__
from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, BuildError, UndecidedError, most_severe
from buildmatrix.base.text import each_text, printable, shown
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.acceptance import FailOn, fails, leaves_open
from buildmatrix.judge.model import (
    GATES,
    IF_KNOWN,
    AuditTotals,
    Finding,
    Gate,
    GateState,
    Spared,
    TargetResult,
    Verdict,
    keep_worst,
    sort_findings,
)
from buildmatrix.judge.registry import drop_repeats, rule_of
from buildmatrix.reports.diff import DistributionChanges, FindingChanges, VerdictChange
from buildmatrix.reports.json_form import Tool

# Data


#: Part of at most so many.
ShardNumber = Annotated[int, Meta(ge=1, le=999_999)]
#: Steps of a target: the gates, then publishing.
Step = Gate | Literal["push"]

_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>[1-9]\d{0,8})")


class Saved(Struct, frozen=True):
    """Bytes that one target downloads and installs less."""

    target: str
    download: Spared
    installed: Spared


class FixesTried(Struct, frozen=True):
    """Result of `audit --fix`: the fixes that work together, as one change."""

    #: For `git apply`; empty where no file can say any of them.
    patch: str = ""
    #: The files that it changes, and whether they were written.
    files: tuple[str, ...] = ()
    written: bool = False
    saved: tuple[Saved, ...] = ()
    #: Untried fixes, and working ones to write by hand; one sentence each.
    notes: tuple[str, ...] = ()


class TargetDifference(Struct, frozen=True):
    """Effect of a change on one target."""

    id: str
    backend: str
    #: Downloaded and installed bytes, before and after; None if unknown.
    before: AuditTotals | None
    after: AuditTotals | None
    #: Differences between the two audits; None if not compared.
    findings: FindingChanges | None
    distributions: DistributionChanges
    verdicts: tuple[VerdictChange, ...] | None


class Difference(Struct, frozen=True):
    """A report of what a change brings: its findings are the new ones."""

    #: Revision as given by the user, and its full commit hash.
    ref: str
    commit: str
    targets: tuple[TargetDifference, ...] = ()
    #: Parts that could not be compared, with reasons; one sentence each.
    notes: tuple[str, ...] = ()
    #: Findings of now, as the policy and the waivers of then count them, that those of now accept,
    #: count less or do not see.
    accepts: tuple[Finding, ...] = ()


class ReportTool(Tool, frozen=True, kw_only=True):
    """Tool that made a report."""

    #: Date of the catalogue, `YYYY-MM-DD`.
    catalogue: str


class ReportShard(Struct, frozen=True):
    """One machine's part of the targets that were selected (`--shard`)."""

    number: ShardNumber
    count: ShardNumber
    #: Digest of the division: which target is in which part.
    plan: str


@dataclass(frozen=True, slots=True)
class Report:
    """Findings and verdicts of a run. Build it with `assemble`, which sorts."""

    schema: Literal["buildmatrix/report/1"] = field(default="buildmatrix/report/1", kw_only=True)
    tool: ReportTool = field(default=ReportTool(version=__version__, catalogue=""), kw_only=True)
    #: Subject: a specification, or a SOURCE such as `wheel:xgboost-3.4.1-....whl`.
    subject: str
    targets: tuple[TargetResult, ...] = ()
    distributions: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    unread: tuple[Unread, ...] = ()
    stats: Stats = field(default_factory=Stats)
    #: Only of `audit --fix` and of `audit --diff`.
    fixes: FixesTried | None = field(default=None, metadata=IF_KNOWN)
    diff: Difference | None = field(default=None, metadata=IF_KNOWN)
    #: Findings of the baseline that are there no more; None without a baseline.
    gone: tuple[Finding, ...] | None = field(default=None, metadata=IF_KNOWN)
    #: The parts that it is about; None where all that was selected was judged by one run.
    shards: tuple[ReportShard, ...] | None = field(default=None, metadata=IF_KNOWN)
    #: Name and version of the specification's project.
    project: str | None = field(default=None, metadata=IF_KNOWN)

    @property
    def ids(self) -> tuple[str, ...]:
        """The identifiers of all targets, in its order."""
        return tuple(target.id for target in self.targets)

    @property
    def is_audit(self) -> bool:
        """True if some target was audited before anything was built."""
        return any(target.audit is not None for target in self.targets)


def assemble(
    subject: str,
    catalogue: str,
    *,
    targets: Iterable[TargetResult] = (),
    findings: Iterable[Finding] = (),
    verdicts: Iterable[Verdict] = (),
    inventories: Iterable[Inventory] = (),
    project: str | None = None,
) -> Report:
    """A report with everything in its place, in an order that does not depend on the run.

    Targets keep their order, which is that of the matrix. A finding that both the lock and the
    image gave is kept once, with the more evidence.
    """
    trees = tuple(inventories)
    unread = {(item.path, item.why): item for tree in trees for item in tree.unread}
    costs = zip(astuple(Stats()), *(astuple(tree.stats) for tree in trees), strict=True)
    results = tuple(targets)
    return Report(
        tool=ReportTool(version=__version__, catalogue=catalogue),
        subject=subject,
        targets=results,
        distributions=_rows(verdicts, [target.id for target in results]),
        findings=_once(findings),
        unread=tuple(item for _, item in sorted(unread.items())),
        stats=Stats(*(sum(cost) for cost in costs)),
        project=project,
    )


def steps(targets: Iterable[TargetResult]) -> tuple[Step, ...]:
    """Return the steps of targets: the gates, and publishing if it was requested."""
    pushed = any(target.push is not None for target in targets)
    return (*GATES, "push") if pushed else GATES


def state_of(target: TargetResult, step: Step) -> GateState:
    """Return the state of a target's step."""
    if step == "push":
        return target.push or "not-run"
    return target.gates.get(step, "not-run")


def requirement_line(finding: Finding) -> tuple[str, int] | None:
    """File and line of the requirement that brought it; None where its chain begins elsewhere."""
    match = _LINE.fullmatch(finding.chain[0]) if finding.chain else None
    return (match["file"], int(match["line"])) if match is not None else None


def left_out(report: Report) -> tuple[str, ...]:
    """Return the unrequested parts of the sources that were not audited, a sentence each."""
    return tuple(dict.fromkeys(target.left_out for target in report.targets if target.left_out))


def targets_in(targets: Iterable[TargetResult], state: GateState) -> int:
    """Count the targets with one of their steps in this state."""
    return sum(state in (*target.gates.values(), target.push) for target in targets)


def exit_code(report: Report, fail_on: FailOn = "error", strict: bool = False) -> int:
    """The exit code of the contract.

    What is undecided (a gate that could not run, a file that could not be read and a distribution
    without a wheel, where no waiver covers them) gives 3, and with `strict` it counts as a finding:
    1; then a verdict that rests on a part of a wheel does too, and so do a source build that was
    asked for and a node class of which the specification says too little. What no advisory service
    could check is a warning, and with `strict` it is undecided: 3.
    """
    codes = [EXIT_FINDINGS] if any(fails(finding, fail_on) for finding in report.findings) else []
    for target in report.targets:
        if "failed" in (target.gates.get("build"), target.push):
            codes.append(BuildError.exit_code)
        if target.gates.get("smoke") == "failed":
            codes.append(EXIT_FINDINGS)
        if target.error is not None and "failed" in (
            target.gates.get("lock"),
            target.gates.get("scan"),
        ):
            codes.append(EXIT_FINDINGS)
    if is_undecided(report):
        codes.append(EXIT_FINDINGS if strict else UndecidedError.exit_code)
    if strict and (
        any(verdict.is_open for verdict in report.distributions)
        or any(cell.is_open for target in report.targets for cell in target.nodes or ())
        or any(rule_of(item.rule).is_open and item.waived is None for item in report.findings)
    ):
        codes.append(EXIT_FINDINGS)
    if strict and any(is_not_checked(finding) for finding in report.findings):
        codes.append(UndecidedError.exit_code)
    return most_severe(codes)


def is_not_checked(finding: Finding) -> bool:
    """Return True if a finding says that known vulnerabilities could not be checked."""
    return rule_of(finding.rule).unknown == "advisories" and finding.waived is None


def is_undecided(report: Report) -> bool:
    """Return True if a requested answer is missing."""
    return bool(
        targets_in(report.targets, "undecided")
        or any(map(leaves_open, report.findings))
        or unread(report)
    )


def unread(report: Report) -> tuple[Unread, ...]:
    """Return the unread parts that no finding reports."""
    covered = {finding.path for finding in report.findings if is_unread(finding)}
    return tuple(item for item in report.unread if item.path not in covered)


def is_unread(finding: Finding) -> bool:
    """Return True if a finding says that a file could not be read."""
    return rule_of(finding.rule).unknown == "file"


def _rows(verdicts: Iterable[Verdict], targets: Sequence[str]) -> tuple[Verdict, ...]:
    """Each verdict once, with all targets that it holds for, in their order.

    Two targets of one backend may hold different wheels of one distribution. Of one target, whose
    lock and image may give a verdict each, the worse counts.
    """
    worst: dict[tuple[str, str, str, str], Verdict] = {}
    for verdict in verdicts:
        for target in verdict.targets or ("",):
            key = (verdict.name, verdict.version, verdict.backend, target)
            keep_worst(worst, key, verdict)
    place = {target: number for number, target in enumerate(targets)}
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    verdict_of: dict[tuple[str, str, str, str], Verdict] = {}
    for key in sorted(worst, key=lambda key: (*key[:3], place.get(key[3], len(place)), key[3])):
        target = key[3]
        verdict = replace(worst[key], targets=())
        # A report of an earlier version names no targets here, and so does this one.
        row = (*key[:3], repr(verdict) if target else "")
        verdict_of.setdefault(row, verdict)
        rows.setdefault(row, []).extend([target] if target else [])
    return tuple(replace(verdict_of[row], targets=tuple(ids)) for row, ids in rows.items())


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    kept: dict[tuple[str, str], Finding] = {}
    for finding in sort_findings(findings):
        key = (finding.target, finding.fingerprint)
        present = kept.get(key)
        if present is None or len(finding.evidence) > len(present.evidence):
            kept[key] = finding
    return sort_findings(kept.values())


# Preparation of texts: without secrets and line breaks


#: Fields of a report whose texts have lines of their own.
_LINES = frozenset({"error", "patch"})


def whole(report: Report) -> Report:
    """The report for formats that programs read, in which a line break is no line break.

    Reading it again gives what was found, with the findings that repeat another one: they
    count once that is accepted.
    """
    return each_text(report, shown)


def drop_duplicates(report: Report) -> Report:
    """The report for programs that count problems: each once, texts with their line breaks.

    A patch that would write a secret is left out: without it, it writes something else.
    """
    findings = drop_repeats(report.findings)
    return each_text(replace(report, findings=tuple(map(_with_whole_patch, findings))), shown)


def _with_whole_patch(finding: Finding) -> Finding:
    fix = finding.fix
    if fix is None or not fix.patch:
        return finding
    lines = [line for line in fix.patch.split("\n") if line.startswith("+")]
    if all(shown(line) == line for line in lines):
        return finding
    return replace(finding, fix=replace(fix, patch=None))


def flatten_texts(report: Report) -> Report:
    """The report for people: each text on a line of its own, each problem once."""
    single = replace(report, findings=drop_repeats(report.findings))
    return each_text(single, lambda text: printable(shown(text)), lines=_LINES)
