"""Totals of a run: counts, waste, and the first fixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from buildmatrix.base.text import bounded, count, listing, size
from buildmatrix.judge.acceptance import is_from_baseline
from buildmatrix.judge.model import ClimbedRung, Finding, Severity, TargetResult, Verdict
from buildmatrix.matrix.model import RUNGS
from buildmatrix.reports import run_revision
from buildmatrix.reports.groups import (
    FindingGroup,
    SharedText,
    cure_key,
    cure_text,
    group_by_text,
    name_targets,
)
from buildmatrix.reports.run import Report, left_out, state_of, steps, targets_in
from buildmatrix.reports.sections import Row, Section, sentences

# Targets


def target_table(report: Report, *, with_time: bool = True) -> Section:
    """The table of targets: their gates, and the bytes of an audit or what a change brings."""
    if report.diff is not None:
        return run_revision.targets(report.diff, report.targets)
    if report.is_audit:
        return Section(
            "targets",
            "",
            ("target", "audit", "download", "wasted", "installed", "wasted"),
            tuple(
                Row((item.id, item.gates.get("lock", "not-run"), *_totals(item)))
                for item in report.targets
            ),
            frozenset({2, 3, 4, 5}),
            frozenset({1}),
            (0, 0, 9, 9, 10, 9),
            subject=0,
        )
    columns = steps(report.targets)
    end = len(columns) + 1
    return Section(
        "targets",
        "",
        ("target", *columns, *(["time"] if with_time else []), "size"),
        tuple(
            Row(
                (
                    item.id,
                    *(state_of(item, step) for step in columns),
                    *(["cached" if item.cached else _seconds(item.seconds)] if with_time else []),
                    size(item.size) if item.size is not None else "",
                )
            )
            for item in report.targets
        ),
        frozenset({end, end + 1}),
        frozenset(range(1, end)),
        (*(0 for _ in range(end)), 7, 8),
        subject=0,
    )


def _totals(target: TargetResult) -> tuple[str, ...]:
    totals = target.audit
    if totals is None or target.error is not None:
        return ("",) * 4
    return (
        size(totals.download),
        bounded(totals.foreign_download, at_least=totals.foreign_at_least),
        size(totals.installed),
        bounded(totals.foreign_installed, at_least=totals.foreign_at_least),
    )


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m"


# Wasted bytes of an audit, and the lines that bring them


class Brought(Struct, frozen=True):
    """Waste that one requirement line brings into one target."""

    #: `requirements.in:3`, and the distribution that it names.
    line: str
    asker: str
    #: Foreign distributions, and bytes of theirs.
    distributions: int
    download: int
    installed: int
    #: True if the bytes are a lower bound: not all of those distributions was read.
    at_least: bool = False


def list_waste(report: Report, target: str) -> tuple[Brought, ...]:
    """Return the waste of each requirement line, the most first.

    A distribution that several lines ask for counts where its chain begins, so the sums add up.
    """
    verdicts = {
        (verdict.name, verdict.version, verdict.backend): verdict
        for verdict in report.distributions
        if verdict.is_about(target, verdict.backend)
    }
    lines: dict[tuple[str, str], dict[str, Verdict]] = {}
    for finding in report.findings:
        verdict = verdicts.get((finding.distribution or "", finding.version or "", finding.backend))
        if finding.target != target or finding.waived is not None or verdict is None:
            continue
        if verdict.verdict == "ok" or not (verdict.foreign_download or verdict.foreign_bytes):
            continue
        if finding.chain:
            first, *rest = finding.chain
            asker = rest[0] if rest and ":" in first else first
            lines.setdefault((first, asker), {})[verdict.name] = verdict
    rows = [
        Brought(
            line,
            asker,
            len(foreign),
            sum(item.foreign_download or 0 for item in foreign.values()),
            sum(item.foreign_bytes for item in foreign.values()),
            any(item.foreign_at_least for item in foreign.values()),
        )
        for (line, asker), foreign in lines.items()
    ]
    return tuple(sorted(rows, key=lambda item: (-item.download, -item.installed, item.line)))


def wasted_texts(report: Report) -> tuple[SharedText, ...]:
    """Return sentences about the waste of each requirement line, with their targets."""
    return group_by_text(
        (
            target.id,
            f"{item.line}{f' {item.asker}' if item.asker != item.line else ''}: "
            f"{'at least ' if item.at_least else ''}{size(item.download)} to download and "
            f"{size(item.installed)} installed are wasted, in "
            f"{count(item.distributions, 'distribution')}",
        )
        for target in report.targets
        for item in list_waste(report, target.id)
    )


def _uncertain_words(report: Report) -> Iterator[str]:
    """Yield a sentence per remedy about the open verdicts.

    Scans, and audits with `--deep`, have read all bytes: verdicts that they leave open depend on
    Python that cannot be parsed.
    """
    is_scan = bool(report.targets) and all(target.audit is None for target in report.targets)
    left: dict[bool, list[str]] = {False: [], True: []}
    # Distributions judged by their source have a finding of their own (BM107).
    every = {(item.name, item.version): item for item in report.distributions if item.is_open}
    for verdict in (item for item in every.values() if is_scan or item.depth is not None):
        left[is_scan or verdict.depth == "whole"].append(f"{verdict.name} {verdict.version}")
    for is_read, basis, remedy in (
        (False, "judged by part of their files", "`audit --deep` reads the rest"),
        (True, "judged without Python files that could not be parsed", "look at those files"),
    ):
        if left[is_read]:
            names = listing(left[is_read], 12)
            yield f"{basis}: {names}. That can still change these verdicts; {remedy}."


# What was not read or not run


def unread_section(report: Report, most: int | None = None) -> Section:
    """Files that could not be read."""
    texts = (f"{item.path}: {item.why}" for item in report.unread)
    return sentences("unread", "Not read, so nothing is known about these", texts, most)


def remarks(report: Report) -> Sequence[Sequence[str]]:
    """Return sentences about what did not run, may still change, or was not requested, by kind."""
    ids = report.ids
    return (
        [
            f"not run for lack of a device: {said.text} of {name_targets(said.targets, ids)}"
            for said in without_device(report)
        ],
        [
            f"preflight of {name_targets(said.targets, ids)}: {said.text}"
            for said in ladders(report)
        ],
        [*_uncertain_words(report)],
        left_out(report),
    )


# First steps: the fixes that resolve most findings


class Cure(Struct, frozen=True):
    """One fix, and how many findings it is for."""

    key: str
    text: str
    findings: int
    targets: tuple[str, ...]
    #: Lines of a specification to write: one under each backend; 0 where it is no such line.
    lines: int
    #: True if it was tried and works.
    works: bool


def cures(
    findings: Iterable[Finding], targets: Sequence[str], *, audited: bool = True
) -> tuple[Cure, ...]:
    """Fixes of open findings, what cures most first; not the advice to accept something.

    `targets` are all targets of the report, in its order.
    """
    order = {target: place for place, target in enumerate(targets)}
    by_key: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda item: order.get(item.target, len(order))):
        fix = finding.offered_fix
        if finding.waived is None and fix is not None and fix.kind != "waive":
            by_key.setdefault(cure_key(finding), []).append(finding)
    merged = (_cure(key, alike, audited) for key, alike in by_key.items())
    return tuple(sorted(merged, key=lambda cure: -cure.findings))


def headline(offered: Sequence[Cure], findings: int) -> str:
    """`2 lines cure 27 of 29 findings; 1 untried step may cure 2`: of all open ones."""
    parts: list[str] = []
    for works in (True, False):
        alike = [cure for cure in offered if cure.works is works]
        if not alike:
            continue
        of_lines = all(cure.lines for cure in alike)
        number = sum(cure.lines for cure in alike) if of_lines else len(alike)
        noun = ("" if works else "untried ") + ("line" if of_lines else "step")
        verb = ("cures" if number == 1 else "cure") if works else "may cure"
        cured = sum(cure.findings for cure in alike)
        whole = "" if parts else f" of {count(findings, 'finding')}"
        parts.append(f"{count(number, noun)} {verb} {cured}{whole}")
    return "; ".join(parts)


def _cure(key: str, findings: Sequence[Finding], audited: bool) -> Cure:
    fixes = [finding.fix for finding in findings if finding.fix is not None]
    is_line = all(
        fix.patch is not None and fix.kind in ("replace", "remove", "index") for fix in fixes
    )
    return Cure(
        key,
        cure_text(findings, audited=audited),
        len(findings),
        tuple(
            dict.fromkeys(
                target for finding in findings for target in (finding.target, *finding.also)
            )
        ),
        len({finding.backend for finding in findings}) if is_line else 0,
        all(fix.tried is not None and fix.tried.works is True for fix in fixes),
    )


# Rungs that ran where images were built, and those that did not


def ladders(report: Report) -> tuple[SharedText, ...]:
    """Return the rungs that ran, those that did not, and who has to run them; alike targets
    together.
    """
    return group_by_text(
        (target.id, "; ".join(_parts(target.rungs))) for target in report.targets if target.rungs
    )


def without_device(report: Report) -> tuple[SharedText, ...]:
    """Smoke commands that were left to machines with the device; alike targets together."""
    return group_by_text(
        (target.id, f"smoke {', '.join(target.smoke_not_run)}")
        for target in report.targets
        if target.smoke_not_run
    )


def _parts(rungs: Sequence[ClimbedRung]) -> Iterator[str]:
    for state, word in (("passed", "passed"), ("failed", "failed"), ("undecided", "undecided")):
        if alike := [rung for rung in rungs if rung.state == state]:
            why = "; ".join(rung.why for rung in alike if rung.why) if state == "passed" else ""
            yield f"{', '.join(rung.rung for rung in alike)} {word}" + (f" ({why})" if why else "")
    left = [rung for rung in rungs if rung.state == "not-run"]
    # Behind a rung that failed there is nothing to be run until that is mended.
    if left and all(rung.state in ("passed", "not-run") for rung in rungs):
        classes = listing(dict.fromkeys(name for rung in left for name in rung.run_on))
        why = "; ".join(dict.fromkeys(rung.why for rung in left if rung.why))
        yield (
            f"{_span(left)} not run{f' ({why})' if why else ''}, left to `buildmatrix preflight`"
            + (f" on {classes}" if classes else "")
        )


def _span(rungs: Sequence[ClimbedRung]) -> str:
    """`compute to cold-start` where nothing between them is missing, else each by its name."""
    names = [rung.rung for rung in rungs]
    first = RUNGS.index(names[0])
    if len(names) > 2 and tuple(names) == RUNGS[first : first + len(names)]:
        return f"{names[0]} to {names[-1]}"
    return ", ".join(names)


# Findings by targets


class TargetsSection(Struct, frozen=True):
    """Section about some targets together."""

    name: str
    targets: tuple[str, ...]
    #: The target, where it failed for a reason other than a finding.
    failed: TargetResult | None
    groups: Sequence[FindingGroup]


def group_by_targets(
    report: Report, groups: Iterable[FindingGroup], others: Iterable[tuple[str, ...]] = ()
) -> Sequence[TargetsSection]:
    """The groups about the same targets together, those about most of them first.

    Targets that failed, and `others`, have a section without a finding, too.
    """
    ids = report.ids
    failed: dict[tuple[str, ...], TargetResult] = {
        (target.id,): target for target in report.targets if target.error is not None
    }
    about: dict[tuple[str, ...], list[FindingGroup]] = {key: [] for key in (*others, *failed)}
    for group in groups:
        about.setdefault(group.targets, []).append(group)

    def place(targets: tuple[str, ...]) -> tuple[int, int]:
        return -len(targets), ids.index(targets[0]) if targets[0] in ids else len(ids)

    return [
        TargetsSection(
            name_targets(targets, ids) or "this run", targets, failed.get(targets), about[targets]
        )
        for targets in sorted(about, key=place)
    ]


# Counts: the last line of a table, the first of Markdown


_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


def select_unaccepted(report: Report) -> tuple[Finding, ...]:
    """The findings that are not accepted."""
    return tuple(finding for finding in report.findings if finding.waived is None)


def summary(report: Report, groups: Sequence[FindingGroup]) -> str:
    """Targets and findings by number; `groups` are those that the format shows."""
    left = select_unaccepted(report)
    parts = [
        count(sum(finding.severity == severity for finding in left), severity)
        for severity in _SEVERITIES
    ]
    in_baseline = sum(is_from_baseline(finding) for finding in report.findings)
    waived = len(report.findings) - len(left) - in_baseline
    if waived:
        parts.append(f"{waived} waived")
    if in_baseline:
        parts.append(f"{in_baseline} in the baseline")
    if report.unread:
        parts.append(f"{len(report.unread)} not read")
    text = ", ".join(parts)
    if len(groups) < len(report.findings):
        text += f" ({count(len(report.findings), 'finding')} in {count(len(groups), 'group')})"
    if report.targets:
        bad = targets_in(report.targets, "failed")
        unknown = targets_in(report.targets, "undecided")
        text = (
            f"{count(len(report.targets), 'target')}: {bad} failed"
            + (f", {unknown} undecided" if unknown else "")
            + f"; {text}"
        )
    return text
