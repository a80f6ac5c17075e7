"""The report as Markdown, for the summary of a CI job or a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from buildmatrix.base.text import bounded, count, listing, size
from buildmatrix.judge.model import TargetResult, Trial
from buildmatrix.reports.markdown import chain, end, fold, plain, rich, state_cell
from buildmatrix.reports.run.groups import (
    FindingGroup,
    SharedText,
    cure_key,
    group_by_text,
    groups,
    join_names,
    name_targets,
    savings_text,
)
from buildmatrix.reports.run.model import FixesTried, Report, left_out, state_of, steps
from buildmatrix.reports.run.revision import (
    COLUMNS,
    accepts,
    change_summary,
    gone,
    group_alike,
    row,
)
from buildmatrix.reports.run.summary import (
    Cure,
    cures,
    headline,
    ladders,
    select_unaccepted,
    summary,
    uncertain_words,
    wasted_texts,
    without_device,
)

# Groups of findings


def group_lines(
    group: FindingGroup,
    targets: Sequence[str],
    *,
    audited: bool,
    number: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Findings with one cause as an item of a list.

    `targets` are all targets of the report, and `number` has the fixes that stand above.
    """
    item = group.first
    word = "waived" if item.waived is not None else item.severity
    where = f" in {plain(name_targets(group.targets, targets))}"
    is_redundant = not any(group.targets) or (
        len(targets) == 1 and set(targets) == set(group.targets)
    )
    head = f"- **{word} {plain(item.rule)}** {plain(item.name)}"
    yield f"{head}{'' if is_redundant else where}" + (
        f": {rich(group.messages[0].text)}" if len(group.messages) == 1 else ""
    )
    for shared in group.messages:
        if len(group.messages) > 1:
            yield f"  <br>{_of(shared, targets)}{rich(shared.text)}"
        if shared.more:
            yield f"  <br>{plain(shared.more)}"
    if item.by_policy:
        yield f"  <br>{plain(item.by_policy)}"
    if item.chain:
        yield f"  <br>{chain(item.chain)}"
    if item.waived is not None:
        yield f"  <br>accepted: {plain(item.waived)}"
        return
    above = sorted({(number or {}).get(cure_key(finding), 0) for finding in group.findings})
    if all(above):
        yield f"  <br>fix: {join_names([*map(str, above)])} above"
        return
    texts = group.cures(audited=audited, numbers=number)
    for shared in texts:
        yield f"  <br>{_of(shared, targets) if len(texts) > 1 else ''}{rich(shared.text)}"


def _of(shared: SharedText, targets: Sequence[str]) -> str:
    return f"{plain(name_targets(shared.targets, targets))}: "


# Effect of a change (`audit --diff`)


#: Findings that are shown before the fold.
_MAX_OPEN = 5


def body(report: Report) -> Iterator[str]:
    """A sentence, a line per target, the worst findings; then what came and went, folded."""
    difference = report.diff
    assert difference is not None
    sentence, accepted = accepts(difference)
    if sentence:
        yield f"**{sentence}**, by its waivers or its policy:"
        yield ""
        for text in accepted:
            yield f"- {rich(text)}"
        yield ""
    revision = f"{plain(difference.ref)} ({difference.commit[:12]})"
    yield f"**{plain(change_summary(difference))}**, compared with {revision}"
    yield ""
    yield f"| target | {' | '.join(COLUMNS)} |"
    yield "|---" + "|---:" * len(COLUMNS) + "|"
    for target in difference.targets:
        yield f"| {plain(target.id)} | {' | '.join(plain(cell) for cell in row(target))} |"
    yield ""
    for result in report.targets:
        if result.error is not None:
            yield f"- {plain(result.id)}: {plain(result.error.splitlines()[0])}"
    ids = [target.id for target in difference.targets]
    finding_groups = groups(report.findings, ids)
    loud = [g for g in finding_groups if g.first.waived is None and g.first.severity != "note"][
        :_MAX_OPEN
    ]
    for group in loud:
        yield from group_lines(group, ids, audited=True)
    rest = [group for group in finding_groups if group not in loud]
    if rest:
        yield from fold(f"{len(rest)} more")
        for group in rest:
            yield from group_lines(group, ids, audited=True)
        yield from end()
    for changes in group_alike(difference):
        block = changes.block
        yield from fold(f"{block.title}: {listing(changes.targets, 8)}")
        yield "| | | | |"
        yield "|---|---|---|---|"
        for line in block.rows:
            cells = (line.sign, line.subject, line.change, line.more)
            yield f"| {' | '.join(plain(cell) for cell in cells)} |"
        if block.left_out:
            yield f"| | and {block.left_out} more | | |"
        yield from end()
    lost = gone(difference)
    if lost:
        yield from fold(f"{count(len(lost), 'finding')} gone")
        for group in lost:
            for shared in group.messages:
                where = plain(listing(shared.targets, 8))
                yield f"- {group.first.rule} {group.first.name}: {rich(shared.text)} ({where})"
                if shared.more:
                    yield f"  <br>{plain(shared.more)}"
        yield from end()
    for item in report.unread:
        yield f"- not read: {plain(item.path)}: {plain(item.why)}"
    for note in difference.notes:
        yield f"- {plain(note)}"


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
    yield f"**{headline(offered, len(select_unaccepted(report)))}**{hint}"
    yield ""
    for place, cure in enumerate(offered[:_CURES], 1):
        where = f": {plain(name_targets(cure.targets, ids))}" if len(ids) > 1 else ""
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
            gates = " | ".join(state_cell(state_of(result, step)) for step in columns)
            image_size = size(result.size) if result.size is not None else ""
            yield f"| {plain(result.id)} | {gates} | {image_size} |"


def _failed_first(targets: Sequence[TargetResult]) -> list[TargetResult]:
    """Return the targets in order; if they do not fit into the open part, failed ones first."""
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
    errors = group_by_text(
        (target.id, target.error) for target in report.targets if target.error is not None
    )
    for shared in errors:
        yield _error(shared, ids, _ERROR)
    for group in finding_groups:
        yield group_lines(group, ids, audited=report.is_audit, number=number)
    for shared in wasted_texts(report) if report.is_audit else ():
        yield (f"- {plain(name_targets(shared.targets, ids))}: {plain(shared.text)}",)
    for item in report.unread:
        yield (f"- not read: {plain(item.path)}: {plain(item.why)}",)
    for text in left_out(report):
        yield (f"- {plain(text)}",)
    for said in without_device(report):
        where = plain(name_targets(said.targets, ids))
        yield (f"- not run for lack of a device: {plain(said.text)} of {where}",)
    for said in ladders(report):
        yield (f"- preflight of {plain(name_targets(said.targets, ids))}: {rich(said.text)}",)
    for text in uncertain_words(report, plain):
        yield (f"- {text}",)
    for shared in errors:
        if shared.text.count("\n") > _ERROR:
            yield _error(shared, ids, None)


def _error(shared: SharedText, targets: Sequence[str], most: int | None) -> list[str]:
    """Yield the errors of targets, with the last lines of a command's output."""
    first, *rest = (line.strip() for line in shared.text.split("\n"))
    rest = [line for line in rest if line]
    left_over = len(rest) - most if most is not None and len(rest) > most else 0
    note = f" (the last {most} of {len(rest)} lines; all of them stand below)" if left_over else ""
    return [
        f"- {plain(name_targets(shared.targets, targets))}: {plain(first)}{note}",
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
        state = state_cell(result.gates.get("lock", "not-run"))
        sizes = " | ".join(cells) or " | | |"
        yield f"| {plain(result.id)} | {state} | {sizes} |"


def _fixes(fixes: FixesTried) -> Iterator[str]:
    if fixes.patch:
        verb = "fixed" if fixes.written else "`audit --fix` would change"
        yield ""
        yield f"**{verb} {plain(', '.join(fixes.files))}**"
        for item in fixes.saved:
            trial = Trial(True, "", item.download, item.installed)
            yield f"- {plain(item.target)}: {plain(savings_text(trial))}"
        # Longer than any fence within it.
        fence = "`" * (3 + fixes.patch.count("`"))
        yield from ("", f"{fence}diff", fixes.patch.rstrip("\n"), fence, "")
    yield from (f"- {plain(note)}" for note in fixes.notes)
