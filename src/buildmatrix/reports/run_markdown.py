"""The report as Markdown, for the summary of a CI job or a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from buildmatrix.base.data import replace
from buildmatrix.base.text import count
from buildmatrix.reports import groups, run_revision, summary
from buildmatrix.reports.markdown import draw, draw_item, end, fold, plain, rich
from buildmatrix.reports.run import FixesTried, Report
from buildmatrix.reports.sections import filled

# Effect of a change (`audit --diff`)


#: Findings that are shown before the fold.
_MAX_OPEN = 5


def body(report: Report) -> Iterator[str]:
    """A sentence, a line per target, the worst findings; then what came and went, folded."""
    difference = report.diff
    assert difference is not None
    yield from draw(filled(run_revision.accepted(difference)))
    revised = f"{plain(difference.ref)} ({difference.commit[:12]})"
    yield f"**{plain(run_revision.change_summary(difference))}**, compared with {revised}"
    yield ""
    yield from draw([summary.target_table(report)])
    for result in report.targets:
        if result.error is not None:
            yield f"- {plain(result.id)}: {plain(result.error.splitlines()[0])}"
    ids = [target.id for target in difference.targets]
    finding_groups = groups.group_findings(report.findings, ids)
    loud = [g for g in finding_groups if g.first.waived is None and g.first.severity != "note"][
        :_MAX_OPEN
    ]
    for group in loud:
        yield from draw_item(group.item(ids, audited=True))
    rest = [group for group in finding_groups if group not in loud]
    if rest:
        yield from fold(f"{len(rest)} more")
        for group in rest:
            yield from draw_item(group.item(ids, audited=True))
        yield from end()
    yield from draw(run_revision.changes(difference))
    for item in report.unread:
        yield f"- not read: {plain(item.path)}: {plain(item.why)}"


# The report. The first 60 lines say what to do; the rest is folded.


#: Lines that are open; the rest is folded. Some of them are for what says that there is a rest.
_OPEN = 60
_TAIL = 4
#: Lines of the table of targets, with its head, that are open.
_ROWS = 22
#: Lines of an error that stand before the findings.
_ERROR = 12
#: Fixes that are listed first.
_CURES = 8


def render(report: Report) -> str:
    """The report as GitHub-flavored Markdown."""
    return "\n".join([f"## buildmatrix: {plain(report.subject)}", "", *_body(report)]) + "\n"


def _body(report: Report) -> Iterator[str]:
    if report.diff is not None:
        yield from body(report)
        return
    ids = report.ids
    finding_groups = groups.group_findings(report.findings, ids)
    offered = summary.cures(report.findings, ids, audited=report.is_audit)
    number = {cure.key: place for place, cure in enumerate(offered[:_CURES], 1)}
    start = [f"**{summary.summary(report, finding_groups)}**", "", *_to_do(report, offered)]
    yield from start
    table = list(_targets(report))
    items = [list(lines) for lines in _items(report, finding_groups, number)]
    room = _OPEN - len(start) - _TAIL
    shown = min(len(table), _ROWS) if len(table) > _ROWS else len(table)
    yield from table[:shown]
    if len(table) > shown:
        yield from fold(f"{len(table) - shown} more targets")
        yield from (*table[:2], *table[shown:])
        yield from end()
    else:
        yield ""
    room -= shown
    if not report.findings:
        yield "No findings."
    while items and len(items[0]) <= room:
        room -= len(items[0])
        yield from items.pop(0)
    if items:
        yield from fold(f"{len(items)} more")
        for lines in items:
            yield from lines
        yield from end()
    if report.fixes is not None:
        change = list(_fixes(report.fixes))
        is_folded = len(change) > room
        yield from fold("what --fix changes") if is_folded else ()
        yield from change
        yield from end() if is_folded else ()


def _to_do(report: Report, offered: Sequence[summary.Cure]) -> Iterator[str]:
    """Yield the first steps: a sentence, then the fixes, numbered."""
    if not offered:
        return
    untried = any(not cure.works for cure in offered) and report.fixes is None
    hint = "; `audit --fix --dry-run` tries the fixes" if untried and report.is_audit else ""
    ids = report.ids
    yield f"**{summary.headline(offered, len(summary.select_unaccepted(report)))}**{hint}"
    yield ""
    for place, cure in enumerate(offered[:_CURES], 1):
        where = f": {plain(groups.name_targets(cure.targets, ids))}" if len(ids) > 1 else ""
        yield f"{place}. {rich(cure.text)} ({count(cure.findings, 'finding')}{where})"
    yield ""
    if len(offered) > _CURES:
        yield f"and {len(offered) - _CURES} more, each beside its finding"
        yield ""


def _targets(report: Report) -> Iterator[str]:
    """Lines of the table; if they do not fit into the open part, failed targets come first."""
    if not report.targets:
        return
    section = summary.target_table(report, with_time=False)
    rows = section.rows
    if len(rows) + 2 > _ROWS:
        rows = tuple(sorted(rows, key=lambda row: not {"failed", "undecided"} & {*row.cells}))
    *lines, _ = draw([replace(section, rows=rows)])
    yield from lines


def _items(
    report: Report, finding_groups: Sequence[groups.FindingGroup], number: Mapping[str, int]
) -> Iterator[Iterable[str]]:
    """Everything below the table, one item of the list at a time, the worst first."""
    ids = report.ids
    errors = groups.group_by_text(
        (target.id, target.error) for target in report.targets if target.error is not None
    )
    for shared in errors:
        yield _error(shared, ids, _ERROR)
    for group in finding_groups:
        yield draw_item(group.item(ids, audited=report.is_audit, numbers=number))
    for shared in summary.wasted_texts(report) if report.is_audit else ():
        yield (f"- {plain(groups.name_targets(shared.targets, ids))}: {plain(shared.text)}",)
    for item in report.unread:
        yield (f"- not read: {plain(item.path)}: {plain(item.why)}",)
    for said in summary.remarks(report):
        yield from ((f"- {rich(text)}",) for text in said)
    for shared in errors:
        if shared.text.count("\n") > _ERROR:
            yield _error(shared, ids, None)


def _error(shared: groups.SharedText, targets: Sequence[str], most: int | None) -> list[str]:
    """Yield the errors of targets, with the last lines of a command's output."""
    first, *rest = (line.strip() for line in shared.text.split("\n"))
    rest = [line for line in rest if line]
    left_over = len(rest) - most if most is not None and len(rest) > most else 0
    note = f" (the last {most} of {len(rest)} lines; all of them stand below)" if left_over else ""
    return [
        f"- {plain(groups.name_targets(shared.targets, targets))}: {plain(first)}{note}",
        *(f"  <br>{plain(line)}" for line in rest[left_over:]),
    ]


def _fixes(fixes: FixesTried) -> Iterator[str]:
    if fixes.patch:
        verb = "fixed" if fixes.written else "`audit --fix` would change"
        yield ""
        yield f"**{verb} {plain(', '.join(fixes.files))}**"
        for item in fixes.saved:
            saved = groups.savings_text(item.download, item.installed)
            yield f"- {plain(item.target)}: {plain(saved)}"
        # Longer than any fence within it.
        fence = "`" * (3 + fixes.patch.count("`"))
        yield from ("", f"{fence}diff", fixes.patch.rstrip("\n"), fence, "")
    yield from (f"- {plain(note)}" for note in fixes.notes)
