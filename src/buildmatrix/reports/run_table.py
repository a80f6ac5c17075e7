"""The report for a terminal or a CI log: all targets with their gates, then the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from buildmatrix.base.data import replace
from buildmatrix.base.text import printable
from buildmatrix.judge.model import NodeFit, TargetResult
from buildmatrix.reports import groups, run_revision, summary
from buildmatrix.reports.node_map import columns, notes, rule_codes
from buildmatrix.reports.run import Report, is_undecided, targets_in
from buildmatrix.reports.sections import Item, Row, Section, filled
from buildmatrix.reports.terminal import Painter, Style, draw, draw_item, wrapped

# Fixes (`audit --fix`)


_LINES: dict[str, tuple[Style]] = {"+": ("green",), "-": ("red",), "@": ("blue",)}


def fixes(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """The patch, what it saves, and what was not tried."""
    tried = report.fixes
    if tried is None:
        return
    if tried.patch:
        names = printable(", ".join(tried.files))
        title = f"fixed: {names}"
        if not tried.written:
            title = f"fixes for {names}; nothing is written, `--fix` without --dry-run does that"
        savings = (
            f"  {printable(item.target)}: "
            + paint(groups.savings_text(item.download, item.installed), "green")
            for item in tried.saved
        )
        yield [*(paint(line, "bold") for line in wrapped(title, width, further="  ")), *savings]
        lines = tried.patch.splitlines()
        yield [paint(printable(line), *_LINES.get(line[:1], ())) for line in lines]
    else:
        works = [f.fix.tried.works for f in report.findings if f.fix is not None and f.fix.tried]
        if not works:
            text = "there is none to try"
        elif True in works:
            text = "they work, but there is nothing to write here"
        elif set(works) == {None}:
            text = "none could be tried"
        elif None in works:
            text = f"none of them works; {works.count(None)} could not be tried"
        else:
            text = "none works"
        yield [paint(f"fixes: {text}", "bold")]
    if tried.notes:
        yield [line for note in tried.notes for line in wrapped(f"- {note}", width, further="  ")]


# Grid of targets and node classes


def grid(targets: Sequence[TargetResult], width: int, paint: Painter) -> list[str]:
    """Targets by node classes; one line for each pair where the grid is too wide.

    Nothing where no target has node classes. What is no finding is said below.
    """
    shown = [target for target in targets if target.nodes]
    if not shown:
        return []
    nodes = columns(shown)

    def row(target: TargetResult) -> Row:
        cells = {fit.node: _cell(fit) for fit in target.nodes or ()}
        return Row((target.id, *(cells.get(node, "-") for node in nodes)))

    section = Section(
        "nodes",
        "",
        ("runs on", *nodes),
        tuple(map(row, shown)),
        states=frozenset(range(1, len(nodes) + 1)),
        subject=0,
    )
    (lines,) = draw([section], width, paint)
    (plain,) = draw([section], width, Painter(False))
    if max(map(len, plain)) > width:
        lines = [paint("runs on", "bold")]
        for target in shown:
            lines.append(printable(target.id))
            for fit in target.nodes or ():
                lines.append(f"  {printable(fit.node)}: {paint.state(fit.state, _cell(fit))}")
    for text in notes(shown):
        lines += wrapped(text, width, "  ")
    return lines


def _cell(fit: NodeFit) -> str:
    codes = rule_codes(fit)
    return f"{fit.state} ({codes})" if codes else fit.state


# The whole table


_INDENT = "  "
#: Margin of the lines that a failed command printed, in an error.
_QUOTED = "  | "
#: Files that could not be read, and are listed one by one.
_SHOWN_UNREAD = 10


def render(report: Report, *, width: int, color: bool) -> str:
    """The report as text, wrapped at `width` columns; chains and names are never cut."""
    paint, width = Painter(color), max(width, 40)
    finding_groups = groups.group_findings(report.findings, report.ids)
    change = ""
    if report.diff is not None:
        change = f"since {report.diff.ref}: {run_revision.change_summary(report.diff)}"
    blocks = [
        *(draw(filled(run_revision.accepted(report.diff)), width, paint) if report.diff else ()),
        *(draw([summary.target_table(report)], width, paint) if report.targets else ()),
        grid(report.targets, width, paint),
        *_findings(report, finding_groups, width, paint),
        _bad_distributions(report, width, paint),
        *draw(filled(summary.unread_section(report, _SHOWN_UNREAD)), width, paint),
        *(
            [line for text in said for line in wrapped(text, width)]
            for said in summary.remarks(report)
        ),
        *fixes(report, width, paint),
        _summary(report, finding_groups, width, paint),
        *(draw(run_revision.changes(report.diff), width, paint) if report.diff else ()),
        [paint(printable(change), "bold")] if change else [],
        _next_command(report, width, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


# Findings


def _findings(
    report: Report, finding_groups: Sequence[groups.FindingGroup], width: int, paint: Painter
) -> Iterator[list[str]]:
    """Yield the findings, those of the same targets together, the most common first."""
    wasted: dict[tuple[str, ...], list[str]] = {}
    for brought in summary.wasted_texts(report) if report.is_audit else ():
        wasted.setdefault(brought.targets, []).extend(wrapped(brought.text, width, _INDENT))
    for section in summary.group_by_targets(report, finding_groups, wasted):
        lines = [paint(line, "bold") for line in wrapped(section.name, width)]
        lines += wasted.get(section.targets, ())
        if section.failed is not None:
            lines += _error(section.failed, width, paint)
        for group, after in zip_longest(section.groups, section.groups[1:]):
            lines += draw_item(_item(group, after, report), width, paint)
        yield lines


def _error(target: TargetResult, width: int, paint: Painter) -> list[str]:
    lines = [part for line in (target.error or "").split("\n") for part in _error_line(line, width)]
    if target.log is not None:
        lines.append(f"{_INDENT}log: {printable(target.log)}")
    return [paint(line, "red") for line in lines]


def _error_line(line: str, width: int) -> list[str]:
    """One line of an error, wrapped; what a command printed keeps its margin `  | `."""
    margin = _QUOTED if line.startswith(_QUOTED) else ""
    return wrapped(line.removeprefix(margin), width, _INDENT + margin) or [_INDENT + margin]


def _item(group: groups.FindingGroup, after: groups.FindingGroup | None, report: Report) -> Item:
    """One finding, or several alike. A cure that the next group has too is only written there."""
    item = replace(group.item(report.ids, audited=report.is_audit), where="")
    if item.state == "note":
        return replace(item, chain=(), remedies=())
    is_repeated = (
        after is not None
        and item.state != "waived"
        and after.first.waived is None
        and after.first.severity != "note"
        and group.cures(audited=True) == after.cures(audited=True)
    )
    return replace(item, remedies=()) if is_repeated else item


# Other sections


def _bad_distributions(report: Report, width: int, paint: Painter) -> list[str]:
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
    lines = [paint("distributions", "bold")] if bad else []
    for verdict, reason in groups.verdicts(bad, groups.whereabouts(report)):
        head = printable(f"{verdict.name} {verdict.version} on {', '.join(reason.targets)}: ")
        first, *rest = wrapped(f"{head}{verdict.verdict}, {reason.text}", width, _INDENT)
        lines += [first.replace(verdict.verdict, paint.state(verdict.verdict), 1), *rest]
    return lines


def _next_command(report: Report, width: int, paint: Painter) -> list[str]:
    """Return the one command that shows more of an audit."""
    if not report.is_audit:
        return []
    left = [finding for finding in summary.select_unaccepted(report) if finding.severity != "note"]
    if report.fixes is None and any(finding.fix and finding.fix.changes for finding in left):
        text = "`buildmatrix audit --fix --dry-run` tries the fixes, and shows what it would write"
    elif left:
        text = f"`buildmatrix rules {left[0].rule}` explains {left[0].name}"
    else:
        text = "`buildmatrix audit --format html=audit.html` writes a page about every distribution"
    return [paint(line, "dim") for line in wrapped(f"more: {text}", width)]


def _summary(
    report: Report, finding_groups: Sequence[groups.FindingGroup], width: int, paint: Painter
) -> list[str]:
    failed = any(finding.severity == "error" for finding in summary.select_unaccepted(report))
    style: Style = "yellow" if is_undecided(report) else "green"
    if failed or targets_in(report.targets, "failed"):
        style = "red"
    lines = wrapped(summary.summary(report, finding_groups), width, further=_INDENT)
    return [paint(line, style, "bold") for line in lines]
