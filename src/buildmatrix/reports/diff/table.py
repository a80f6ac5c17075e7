"""A comparison for a terminal or a CI log: new findings, then every kind of difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.base.text import printable
from buildmatrix.reports.diff.model import Comparison, FindingChange
from buildmatrix.reports.diff.words import (
    FINDING_WORDS,
    MOST_FINDINGS,
    MOST_UNREAD,
    Block,
    ChangeRow,
    blocks,
    end,
    severity_text,
    summary,
)
from buildmatrix.reports.terminal import Painter, Style, wrapped

#: Marks of additions, removals and changes.
SIGN_STYLES: dict[str, Style] = {"+": "green", "-": "red", "~": "yellow"}


def render(comparison: Comparison, *, width: int, color: bool, every: bool = False) -> str:
    """The comparison as text, wrapped at `width` columns."""
    paint = Painter(color)
    wide = max(width, 60)
    sections = [
        _ends(comparison, paint),
        *_findings(comparison, wide, paint, every),
        *(_block(block, wide, paint) for block in blocks(comparison, every=every)),
        *_unread(comparison, paint, every),
        *_notes(comparison, wide, paint),
        [_summary(comparison, paint)],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _ends(comparison: Comparison, paint: Painter) -> list[str]:
    return [
        f"{sign} {paint(printable(side.source), 'bold')}  {printable(end(side))}"
        for sign, side in (("-", comparison.before), ("+", comparison.after))
    ]


def _findings(
    comparison: Comparison, width: int, paint: Painter, every: bool
) -> Iterator[list[str]]:
    changes = comparison.finding_changes
    if not changes:
        return
    shown = changes if every else changes[:MOST_FINDINGS]
    lines = [paint("findings", "bold")]
    for change in shown:
        lines += _finding(change, width, paint)
    if len(changes) > len(shown):
        lines.append(f"  and {len(changes) - len(shown)} more; --all lists them")
    yield lines


def _finding(change: FindingChange, width: int, paint: Painter) -> list[str]:
    finding = change.finding
    word = FINDING_WORDS[change.change]
    style: Style = "dim"
    if change.change != "removed" and finding.waived is None:
        style = "red" if finding.severity == "error" else "yellow"
    severity = _severity(change)
    title = f"  {paint(f'{word} {severity}', style, 'bold')} {finding.rule} {finding.name}"
    lines = [f"{title}  {printable(finding.label)}".rstrip()]
    lines += wrapped(finding.message, width, "    ")
    if change.change != "removed":
        if finding.chain:
            lines += wrapped(" -> ".join(finding.chain), width, "    ")
        if finding.waived is not None:
            lines += wrapped(f"accepted: {finding.waived}", width, "    ")
        elif finding.fix is not None:
            lines += wrapped(f"fix: {finding.fix.text}", width, "    ")
    return lines


def _severity(change: FindingChange) -> str:
    if change.before is not None and change.after is not None:
        return f"{severity_text(change.before)} -> {severity_text(change.after)}"
    return severity_text(change.finding)


def _block(block: Block, width: int, paint: Painter) -> list[str]:
    lines = [paint(printable(block.title), "bold")]
    names = max((len(printable(row.subject)) for row in block.rows), default=0)
    for row in block.rows:
        lines += _row(row, min(names, 40), width, paint)
    if block.left_out:
        lines.append(f"  and {block.left_out} more; --all lists them")
    return lines


def _row(row: ChangeRow, names: int, width: int, paint: Painter) -> list[str]:
    sign = paint(row.sign, SIGN_STYLES[row.sign])
    subject = printable(row.subject)
    change = printable(row.change)
    first = f"  {sign} {paint(subject, 'bold') if row.is_loud else subject}"
    first += " " * (max(0, names - len(subject)) + 2) + change
    plain = 4 + max(names, len(subject)) + 2 + len(change)
    more = printable(row.more)
    if not more:
        return [first.rstrip()]
    if plain + 3 + len(more) <= width:
        return [f"{first}   {paint(more, 'dim')}"]
    return [first.rstrip(), *(paint(line, "dim") for line in wrapped(more, width, " " * 6))]


def _unread(comparison: Comparison, paint: Painter, every: bool) -> Iterator[list[str]]:
    for side in (comparison.before, comparison.after):
        if not side.unread:
            continue
        shown: Sequence[str] = [
            f"  {printable(item.path)}: {printable(item.why)}"
            for item in (side.unread if every else side.unread[:MOST_UNREAD])
        ]
        more = len(side.unread) - len(shown)
        yield [
            paint(f"not read in {printable(side.source)}", "bold"),
            *shown,
            *([f"  and {more} more; --all lists them"] if more else []),
        ]


def _notes(comparison: Comparison, width: int, paint: Painter) -> Iterator[list[str]]:
    if comparison.notes:
        lines = [line for note in comparison.notes for line in wrapped(note, width, "  ")]
        yield [paint("not compared", "bold"), *(paint(line, "dim") for line in lines)]


def _summary(comparison: Comparison, paint: Painter) -> str:
    findings = comparison.findings.new if comparison.findings is not None else ()
    new = [finding for finding in findings if finding.waived is None]
    style: Style = "green"
    if new:
        style = "red" if any(finding.severity == "error" for finding in new) else "yellow"
    return paint(summary(comparison), style, "bold")
