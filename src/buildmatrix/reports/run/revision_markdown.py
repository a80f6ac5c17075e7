"""Effect of a change (`audit --diff`), as a comment on a pull request; details are folded."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count, listing
from buildmatrix.reports.markdown import end, fold, plain, rich
from buildmatrix.reports.run.groups import groups
from buildmatrix.reports.run.markdown_group import group_lines
from buildmatrix.reports.run.model import Report
from buildmatrix.reports.run.revision_words import COLUMNS, accepts, alike, gone, row, summary

#: Findings that are shown before the fold.
_OPEN = 5


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
    yield f"**{plain(summary(difference))}**, compared with {revision}"
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
        :_OPEN
    ]
    for group in loud:
        yield from group_lines(group, ids, audited=True)
    rest = [group for group in finding_groups if group not in loud]
    if rest:
        yield from fold(f"{len(rest)} more")
        for group in rest:
            yield from group_lines(group, ids, audited=True)
        yield from end()
    for changes in alike(difference):
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
