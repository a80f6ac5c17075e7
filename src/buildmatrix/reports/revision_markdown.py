"""What a change brings (`audit --diff`), as a comment on a pull request: the rest is folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from buildmatrix.reports.markdown import finding_lines, plain
from buildmatrix.reports.model import Report
from buildmatrix.reports.revision_words import COLUMNS, Same, alike, gone, row, same, summary
from buildmatrix.rules.text import count, listing

#: Findings that are told before the fold.
_OPEN = 5


def body(report: Report) -> Iterator[str]:
    """A sentence, a line per target, the worst findings; then what came and went, folded."""
    it = report.difference
    assert it is not None
    yield f"**{plain(summary(it))}**, compared with {plain(it.ref)} ({it.commit[:12]})"
    yield ""
    yield f"| target | {' | '.join(COLUMNS)} |"
    yield "|---" + "|---:" * len(COLUMNS) + "|"
    for target in it.targets:
        yield f"| {plain(target.target)} | {' | '.join(plain(cell) for cell in row(target))} |"
    yield ""
    for result in report.targets:
        if result.error is not None:
            yield f"- {plain(result.id)}: {plain(result.error.splitlines()[0])}"
    groups = same(report.findings)
    loud = [g for g in groups if g.first.waived is None and g.first.severity != "note"][:_OPEN]
    for group in loud:
        yield from _group(group)
    rest = [group for group in groups if group not in loud]
    if rest:
        yield from _fold(f"{len(rest)} more")
        for group in rest:
            yield from _group(group)
        yield from _end()
    for changes in alike(it):
        block = changes.block
        yield from _fold(f"{block.title}: {listing(changes.targets, 8)}")
        yield "| | | | |"
        yield "|---|---|---|---|"
        for line in block.rows:
            cells = (line.sign, line.what, line.change, line.more)
            yield f"| {' | '.join(plain(cell) for cell in cells)} |"
        if block.left_out:
            yield f"| | and {block.left_out} more | | |"
        yield from _end()
    lost = gone(it)
    if lost:
        yield from _fold(f"{count(len(lost), 'finding')} gone")
        for group in lost:
            where = plain(listing(group.targets, 8))
            one = group.first
            yield f"- {one.rule} {one.name}: {plain(one.message)} ({where})"
            if group.others:
                yield f"  <br>with it: {plain(listing(group.others, 30))}"
        yield from _end()
    for item in report.unread:
        yield f"- not read: {plain(item.path)}: {plain(item.why)}"
    for note in it.notes:
        yield f"- {plain(note)}"


def _group(group: Same) -> Iterator[str]:
    lines = list(finding_lines(replace(group.first, target=""), audited=True))
    yield f"{lines[0]} ({plain(listing(group.targets, 8))})"
    if group.others:
        yield f"  <br>with it: {plain(listing(group.others, 30))}"
    yield from lines[1:]


def _fold(title: str) -> Iterator[str]:
    yield ""
    text = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield f"<details><summary>{text}</summary>"
    yield ""


def _end() -> Iterator[str]:
    yield ""
    yield "</details>"
    yield ""
