"""A comparison as Markdown, for pull requests: new findings first, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.reports.diff.model import Comparison, FindingChange
from buildmatrix.reports.diff.words import (
    FINDING_WORDS,
    MOST_FINDINGS,
    MOST_UNREAD,
    Block,
    blocks,
    end,
    severity_text,
    summary,
)
from buildmatrix.reports.markdown import chain, plain


def render(comparison: Comparison, *, every: bool = False) -> str:
    """The comparison as GitHub-flavored Markdown."""
    return "\n".join(_lines(comparison, every)) + "\n"


def _lines(comparison: Comparison, every: bool) -> Iterator[str]:
    yield "## buildmatrix: what changed"
    yield ""
    yield f"{plain(comparison.before.source)} ({plain(end(comparison.before))}) &rarr; "
    yield f"{plain(comparison.after.source)} ({plain(end(comparison.after))})"
    yield ""
    yield f"**{plain(summary(comparison))}**"
    yield ""
    changes = comparison.finding_changes
    finding_changes = changes if every else changes[:MOST_FINDINGS]
    for change in finding_changes:
        yield from _finding(change)
    if len(changes) > len(finding_changes):
        yield f"- and {len(changes) - len(finding_changes)} more findings; `--all` lists them"
    for block in blocks(comparison, every=every):
        yield from _block(block)
    for side in (comparison.before, comparison.after):
        shown = side.unread if every else side.unread[:MOST_UNREAD]
        for item in shown:
            yield f"- not read in {plain(side.source)}: {plain(item.path)}: {plain(item.why)}"
        if len(side.unread) > len(shown):
            yield f"- and {len(side.unread) - len(shown)} more that were not read"
    for note in comparison.notes:
        yield f"- {plain(note)}"


def _finding(change: FindingChange) -> Iterator[str]:
    finding = change.finding
    word = FINDING_WORDS[change.change]
    state = severity_text(finding)
    if change.before is not None and change.after is not None:
        state = f"{severity_text(change.before)} &rarr; {state}"
    mark = "**" if change.change != "removed" else ""
    head = f"{mark}{word} {state} {plain(finding.rule)}{mark} {plain(finding.name)}"
    yield f"- {head}: {plain(finding.message)}"
    if change.change == "removed":
        return
    if finding.chain:
        yield f"  <br>{chain(finding.chain)}"
    if finding.waived is not None:
        yield f"  <br>accepted: {plain(finding.waived)}"
    elif finding.fix is not None:
        yield f"  <br>fix: {plain(finding.fix.text)}"


def _block(block: Block) -> Iterator[str]:
    yield ""
    yield f"<details><summary>{_html(block.title)}</summary>"
    yield ""
    yield "| | | | |"
    yield "|---|---|---|---|"
    for row in block.rows:
        name = f"**{plain(row.subject)}**" if row.is_loud else plain(row.subject)
        yield f"| {plain(row.sign)} | {name} | {plain(row.change)} | {plain(row.more)} |"
    if block.left_out:
        yield f"| | and {block.left_out} more; `--all` lists them | | |"
    yield ""
    yield "</details>"
    yield ""


def _html(text: str) -> str:
    """Text inside of an HTML element; our own titles, with numbers in them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("->", "&rarr;")
