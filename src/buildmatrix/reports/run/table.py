"""The report for a terminal or a CI log: all targets with their gates, then what was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from buildmatrix.phrases import size
from buildmatrix.reports.run import revision_table, table_audit, table_fixes, table_nodes
from buildmatrix.reports.run.groups import (
    FindingGroup,
    SharedText,
    groups,
    named,
    verdicts,
    whereabouts,
)
from buildmatrix.reports.run.model import (
    Report,
    is_undecided,
    left_out,
    state_of,
    steps,
    targets_in,
)
from buildmatrix.reports.run.rungs import ladders, without_device
from buildmatrix.reports.run.summary import summary, unsettled
from buildmatrix.reports.run.table_states import STATES
from buildmatrix.reports.run.wasted import wasted_texts
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.rules.model import Severity, TargetResult, Verdict
from buildmatrix.text import printable

_INDENT = "  "
#: Margin of the lines that a failed command printed, in an error.
_QUOTED = "  | "
_SEVERITIES: dict[Severity, Style] = {"error": "red", "warning": "yellow", "note": "blue"}
#: Files that could not be read, and are listed one by one.
_SHOWN_UNREAD = 10


def render(report: Report, *, width: int, color: bool) -> str:
    """The report as text, wrapped at `width` columns; chains and names are never cut."""
    paint, width = Painter(color), max(width, 40)
    finding_groups = groups(report.findings, [target.id for target in report.targets])
    blocks = [
        revision_table.accepted(report.diff, width, paint) if report.diff is not None else [],
        *([_targets(report, paint)] if report.targets else []),
        table_nodes.grid(report.targets, width, paint),
        *_findings(report, finding_groups, width, paint),
        *_bad_distributions(report, width, paint),
        *_unread(report, paint),
        _without_device(report, width, paint),
        _ladders(report, width, paint),
        wrapped(table_audit.not_certain(report), width),
        [line for text in left_out(report) for line in wrapped(text, width)],
        *table_fixes.fixes(report, width, paint),
        [_summary(report, finding_groups, paint)],
        *(revision_table.changes(report.diff, width, paint) if report.diff is not None else ()),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


# Targets


def _targets(report: Report, paint: Painter) -> list[str]:
    targets = report.targets
    if report.diff is not None:
        return revision_table.targets(report.diff, targets, paint)
    if any(target.audit is not None for target in targets):
        return table_audit.targets(targets, paint)
    names = [printable(target.id) for target in targets]
    name_width = max(map(len, ("target", *names)))
    columns = steps(targets)
    head = [*(step.ljust(6) for step in columns), "time".rjust(7), "size".rjust(8)]
    lines = [paint("  ".join(["target".ljust(name_width), *head]), "bold")]
    for name, result in zip(names, targets, strict=True):
        cells = [name.ljust(name_width)]
        for step in columns:
            text, style = STATES[state_of(result, step)]
            cells.append(paint(text.ljust(6), style))
        cells.append(("cached" if result.cached else _seconds(result.seconds)).rjust(7))
        cells.append((size(result.size) if result.size is not None else "").rjust(8))
        lines.append("  ".join(cells).rstrip())
    return lines


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m"


# Findings


def _findings(
    report: Report, finding_groups: Sequence[FindingGroup], width: int, paint: Painter
) -> Iterator[list[str]]:
    """Yield the findings, those of the same targets together, the most common first."""
    ids = [result.id for result in report.targets]
    about: dict[tuple[str, ...], list[str]] = {}
    for brought in wasted_texts(report) if report.is_audit else ():
        about.setdefault(brought.targets, []).extend(wrapped(brought.text, width, _INDENT))
    for target in report.targets:
        if target.error is not None:
            about.setdefault((target.id,), []).extend(_error(target, width, paint))
    blocks: dict[tuple[str, ...], list[FindingGroup]] = {}
    for group in finding_groups:
        blocks.setdefault(group.targets, []).append(group)
    for targets, same in blocks.items():
        lines = about.setdefault(targets, [])
        for group, after in zip_longest(same, same[1:]):
            lines += _block(group, after, ids, width, paint, audited=report.is_audit)

    def place(targets: tuple[str, ...]) -> tuple[int, int]:
        return -len(targets), ids.index(targets[0]) if targets[0] in ids else len(ids)

    for targets in sorted(about, key=place):
        title = wrapped(named(targets, ids), width) or ["this run"]
        yield [*(paint(line, "bold") for line in title), *about[targets]]


def _error(target: TargetResult, width: int, paint: Painter) -> list[str]:
    lines = [part for line in (target.error or "").split("\n") for part in _error_line(line, width)]
    if target.log is not None:
        lines.append(f"{_INDENT}log: {printable(target.log)}")
    return [paint(line, "red") for line in lines]


def _error_line(line: str, width: int) -> list[str]:
    """One line of an error, wrapped; what a command printed keeps its margin `  | `."""
    margin = _QUOTED if line.startswith(_QUOTED) else ""
    return wrapped(line.removeprefix(margin), width, _INDENT + margin) or [_INDENT + margin]


def _block(
    group: FindingGroup,
    after: FindingGroup | None,
    ids: Sequence[str],
    width: int,
    paint: Painter,
    *,
    audited: bool,
) -> list[str]:
    """One finding, or several alike. A cure that the next block has too is only written there."""
    first = group.first
    inner = _INDENT * 2
    word = "waived" if first.waived is not None else first.severity
    style: Style = "dim" if first.waived is not None else _SEVERITIES[first.severity]
    title = f"{_INDENT}{paint(word, style, 'bold')} {first.rule} {paint(first.name, 'bold')}"
    lines = [f"{title}  {printable(first.label)}".rstrip()]
    for shared in group.messages:
        lines += wrapped(_of(shared, group.messages, ids) + shared.text, width, inner)
        lines += wrapped(shared.more, width, inner)
    lines += wrapped(first.by_policy, width, inner)
    if first.severity == "note" and first.waived is None:
        return lines
    if first.chain:
        lines += [paint(line, "dim") for line in _chain(first.chain, width, inner)]
    if first.waived is not None:
        lines += wrapped(f"accepted: {first.waived}", width, inner)
    elif not (after and _is_same_cure(group, after)):
        cures = group.cures(audited=audited)
        for shared in cures:
            lines += wrapped(_of(shared, cures, ids) + shared.text, width, inner)
    return lines


def _of(shared: SharedText, texts: Sequence[SharedText], ids: Sequence[str]) -> str:
    """Return the targets that a text is about, if targets differ."""
    return f"{named(shared.targets, ids)}: " if len(texts) > 1 else ""


def _is_same_cure(group: FindingGroup, after: FindingGroup) -> bool:
    if after.first.waived is not None or after.first.severity == "note":
        return False
    return group.cures(audited=True) == after.cures(audited=True)


def _chain(chain: Sequence[str], width: int, indent: str) -> list[str]:
    """`a -> b -> c`, broken only at the arrows."""
    lines = [indent + printable(chain[0])]
    for link in map(printable, chain[1:]):
        if len(lines[-1]) + len(" -> ") + len(link) <= width:
            lines[-1] += f" -> {link}"
        else:
            lines.append(f"{indent}  -> {link}")
    return lines


# The rest


def _bad_distributions(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """Verdicts other than `ok`; single wheels have no targets, and these are their result.

    Where an audit has a finding about a distribution, that says the same.
    """
    with_findings = {
        (finding.distribution, finding.version, finding.backend, target)
        for finding in report.findings
        if finding.severity != "note"
        for target in ("", finding.target, *finding.also)
    }
    bad = [
        verdict
        for verdict in report.distributions
        if verdict.verdict != "ok"
        and not (
            report.is_audit
            and all(
                (verdict.name, verdict.version, verdict.backend, target) in with_findings
                for target in verdict.targets or ("",)
            )
        )
    ]
    if not bad:
        return
    yield [
        paint("distributions", "bold"),
        *(
            line
            for verdict, reason in verdicts(bad, whereabouts(report))
            for line in _verdict(verdict, reason, width, paint)
        ),
    ]


def _verdict(verdict: Verdict, reason: SharedText, width: int, paint: Painter) -> list[str]:
    style: Style = "red" if verdict.verdict == "broken" else "yellow"
    head = printable(f"{verdict.name} {verdict.version} on {', '.join(reason.targets)}: ")
    lines = wrapped(f"{head}{verdict.verdict}, {reason.text}", width, _INDENT)
    return [lines[0].replace(verdict.verdict, paint(verdict.verdict, style), 1), *lines[1:]]


def _unread(report: Report, paint: Painter) -> Iterator[list[str]]:
    if not report.unread:
        return
    lines = [
        f"{_INDENT}{printable(item.path)}: {printable(item.why)}"
        for item in report.unread[:_SHOWN_UNREAD]
    ]
    more = len(report.unread) - _SHOWN_UNREAD
    yield [
        paint("not read, so nothing is known about these", "bold"),
        *lines,
        *([f"{_INDENT}and {more} more"] if more > 0 else []),
    ]


def _without_device(report: Report, width: int, paint: Painter) -> list[str]:
    """Return what a green smoke gate does not cover."""
    return [
        paint(line, "dim")
        for said in without_device(report)
        for line in wrapped(
            f"not run for lack of a device: {said.text} of {', '.join(said.targets)}", width
        )
    ]


def _ladders(report: Report, width: int, paint: Painter) -> list[str]:
    ids = [target.id for target in report.targets]
    return [
        paint(line, "dim")
        for said in ladders(report)
        for line in wrapped(f"preflight of {named(said.targets, ids)}: {said.text}", width)
    ]


def _summary(report: Report, finding_groups: Sequence[FindingGroup], paint: Painter) -> str:
    failed = any(finding.severity == "error" for finding in unsettled(report))
    style: Style = "yellow" if is_undecided(report) else "green"
    if failed or targets_in(report.targets, "failed"):
        style = "red"
    return paint(summary(report, finding_groups), style, "bold")
