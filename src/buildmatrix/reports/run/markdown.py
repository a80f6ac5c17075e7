"""The report as Markdown, for the summary of a CI job or a comment on a pull request.

It starts with what to do. What does not fit into the first 60 lines is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from buildmatrix.phrases import bounded, count, size
from buildmatrix.reports.markdown import end, fold, plain, rich
from buildmatrix.reports.run.cures import Cure, cures, headline
from buildmatrix.reports.run.fix_words import saved
from buildmatrix.reports.run.groups import FindingGroup, SharedText, by_text, groups, named
from buildmatrix.reports.run.markdown_group import group_lines
from buildmatrix.reports.run.model import FixesTried, Report, left_out, state_of, steps
from buildmatrix.reports.run.rungs import ladders, without_device
from buildmatrix.reports.run.summary import summary, unsettled
from buildmatrix.reports.run.wasted import uncertain_words, wasted_texts
from buildmatrix.rules.model import GateState, TargetResult, Trial

_STATES: dict[GateState, str] = {
    "passed": "ok",
    "failed": "**failed**",
    "undecided": "**undecided**",
    "not-run": "not run",
}
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
        from buildmatrix.reports.run import revision_markdown

        yield from revision_markdown.body(report)
        return
    ids = [target.id for target in report.targets]
    finding_groups = groups(report.findings, ids)
    offered = cures(report.findings, ids, audited=report.is_audit)
    number = {cure.key: place for place, cure in enumerate(offered[:_CURES], 1)}
    start = [f"**{summary(report, finding_groups)}**", "", *_to_do(report, offered)]
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


def _to_do(report: Report, offered: Sequence[Cure]) -> Iterator[str]:
    """Yield the first steps: a sentence, then the fixes, numbered."""
    if not offered:
        return
    untried = any(not cure.works for cure in offered) and report.fixes is None
    hint = "; `audit --fix --dry-run` tries the fixes" if untried and report.is_audit else ""
    ids = [target.id for target in report.targets]
    yield f"**{headline(offered, len(unsettled(report)))}**{hint}"
    yield ""
    for place, cure in enumerate(offered[:_CURES], 1):
        where = f": {plain(named(cure.targets, ids))}" if len(ids) > 1 else ""
        yield f"{place}. {rich(cure.text)} ({count(cure.findings, 'finding')}{where})"
    yield ""
    if len(offered) > _CURES:
        yield f"and {len(offered) - _CURES} more, each beside its finding"
        yield ""


def _targets(report: Report) -> Iterator[str]:
    if report.is_audit:
        yield from _audited(report)
    elif report.targets:
        columns = steps(report.targets)
        yield f"| target | {' | '.join(columns)} | size |"
        yield "|---" * (len(columns) + 2) + "|"
        for result in _failed_first(report.targets):
            gates = " | ".join(_STATES[state_of(result, step)] for step in columns)
            image_size = size(result.size) if result.size is not None else ""
            yield f"| {plain(result.id)} | {gates} | {image_size} |"


def _failed_first(targets: Sequence[TargetResult]) -> list[TargetResult]:
    """In their order, unless some do not fit into the open part: then what failed comes first."""
    if len(targets) + 2 <= _ROWS:
        return list(targets)
    return sorted(
        targets,
        key=lambda target: not {"failed", "undecided"} & {*target.gates.values(), target.push},
    )


def _items(
    report: Report, finding_groups: Sequence[FindingGroup], number: Mapping[str, int]
) -> Iterator[Iterable[str]]:
    """Everything below the table, one item of the list at a time, the worst first."""
    ids = [target.id for target in report.targets]
    errors = by_text(
        (target.id, target.error) for target in report.targets if target.error is not None
    )
    for shared in errors:
        yield _error(shared, ids, _ERROR)
    for group in finding_groups:
        yield group_lines(group, ids, audited=report.is_audit, number=number)
    for shared in wasted_texts(report) if report.is_audit else ():
        yield (f"- {plain(named(shared.targets, ids))}: {plain(shared.text)}",)
    for item in report.unread:
        yield (f"- not read: {plain(item.path)}: {plain(item.why)}",)
    for text in left_out(report):
        yield (f"- {plain(text)}",)
    for said in without_device(report):
        where = plain(named(said.targets, ids))
        yield (f"- not run for lack of a device: {plain(said.text)} of {where}",)
    for said in ladders(report):
        yield (f"- preflight of {plain(named(said.targets, ids))}: {rich(said.text)}",)
    for text in uncertain_words(report, plain):
        yield (f"- {text}",)
    for shared in errors:
        if shared.text.count("\n") > _ERROR:
            yield _error(shared, ids, None)


def _error(shared: SharedText, targets: Sequence[str], most: int | None) -> list[str]:
    """Why targets failed, with the last lines of what a command printed."""
    first, *rest = (line.strip() for line in shared.text.split("\n"))
    rest = [line for line in rest if line]
    left_over = len(rest) - most if most is not None and len(rest) > most else 0
    note = f" (the last {most} of {len(rest)} lines; all of them stand below)" if left_over else ""
    return [
        f"- {plain(named(shared.targets, targets))}: {plain(first)}{note}",
        *(f"  <br>{plain(line)}" for line in rest[left_over:]),
    ]


def _audited(report: Report) -> Iterator[str]:
    yield "| target | audit | download | wasted | installed | wasted |"
    yield "|---|---|---:|---:|---:|---:|"
    for result in _failed_first(report.targets):
        totals = result.audit
        cells = (
            (
                size(totals.download),
                bounded(totals.foreign_download, at_least=totals.foreign_at_least),
                size(totals.installed),
                bounded(totals.foreign_installed, at_least=totals.foreign_at_least),
            )
            if totals is not None and result.error is None
            else ()
        )
        state = _STATES[result.gates.get("lock", "not-run")]
        sizes = " | ".join(cells) or " | | |"
        yield f"| {plain(result.id)} | {state} | {sizes} |"


def _fixes(fixes: FixesTried) -> Iterator[str]:
    if fixes.patch:
        verb = "fixed" if fixes.written else "`audit --fix` would change"
        yield ""
        yield f"**{verb} {plain(', '.join(fixes.files))}**"
        for item in fixes.saved:
            trial = Trial(True, "", item.download, item.installed)
            yield f"- {plain(item.target)}: {plain(saved(trial))}"
        # Longer than any fence within it.
        fence = "`" * (3 + fixes.patch.count("`"))
        yield from ("", f"{fence}diff", fixes.patch.rstrip("\n"), fence, "")
    yield from (f"- {plain(note)}" for note in fixes.notes)
