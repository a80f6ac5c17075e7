"""A comparison as Markdown: a comment on a pull request, what is new open, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.reports.diff.model import Comparison, FindingChange
from buildmatrix.reports.diff.words import Block, blocks, end, summary
from buildmatrix.reports.markdown import plain

#: Findings that are told without `--all`.
MOST_FINDINGS = 20
_UNREAD = 10
_WORDS = {"added": "new", "removed": "gone", "changed": "changed"}


def render(comparison: Comparison, *, every: bool = False) -> str:
    """The comparison as GitHub-flavoured Markdown."""
    return "\n".join(_lines(comparison, every)) + "\n"


def _lines(it: Comparison, every: bool) -> Iterator[str]:
    yield "## buildmatrix: what changed"
    yield ""
    yield f"{plain(it.before.source)} ({plain(end(it.before))}) &rarr; "
    yield f"{plain(it.after.source)} ({plain(end(it.after))})"
    yield ""
    yield f"**{plain(summary(it))}**"
    yield ""
    changes = it.finding_changes
    told = changes if every else changes[:MOST_FINDINGS]
    for change in told:
        yield from _finding(change)
    if len(changes) > len(told):
        yield f"- and {len(changes) - len(told)} more findings; `--all` lists them"
    for block in blocks(it, every=every):
        yield from _block(block)
    for side in (it.before, it.after):
        shown = side.unread if every else side.unread[:_UNREAD]
        for item in shown:
            yield f"- not read in {plain(side.source)}: {plain(item.path)}: {plain(item.why)}"
        if len(side.unread) > len(shown):
            yield f"- and {len(side.unread) - len(shown)} more that were not read"
    for note in it.notes:
        yield f"- {plain(note)}"


def _finding(change: FindingChange) -> Iterator[str]:
    one = change.finding
    word = _WORDS[change.change]
    severity: str = "accepted" if one.waived is not None else one.severity
    if change.before is not None and change.after is not None:
        before: str = "accepted" if change.before.waived is not None else change.before.severity
        severity = f"{before} &rarr; {severity}"
    mark = "**" if change.change != "removed" else ""
    head = f"{mark}{word} {severity} {plain(one.rule)}{mark} {plain(one.name)}"
    yield f"- {head}: {plain(one.message)}"
    if change.change == "removed":
        return
    if one.chain:
        yield f"  <br>{' &rarr; '.join(plain(link) for link in one.chain)}"
    if one.waived is not None:
        yield f"  <br>accepted: {plain(one.waived)}"
    elif one.fix is not None:
        yield f"  <br>fix: {plain(one.fix.text)}"


def _block(block: Block) -> Iterator[str]:
    yield ""
    yield f"<details><summary>{_html(block.title)}</summary>"
    yield ""
    yield "| | | | |"
    yield "|---|---|---|---|"
    for row in block.rows:
        name = f"**{plain(row.what)}**" if row.is_loud else plain(row.what)
        yield f"| {plain(row.sign)} | {name} | {plain(row.change)} | {plain(row.more)} |"
    if block.left_out:
        yield f"| | and {block.left_out} more; `--all` lists them | | |"
    yield ""
    yield "</details>"
    yield ""


def _html(text: str) -> str:
    """Text inside of an HTML element; our own titles, with numbers in them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("->", "&rarr;")
