"""The parts of the table that `audit --diff` has: what a change brings, and what it takes away."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from buildmatrix.reports.ansi import Painter, Style, printable
from buildmatrix.reports.difference_words import COLUMNS, alike, gone, row, summary
from buildmatrix.reports.model import Difference
from buildmatrix.rules.text import listing

_SIGNS: dict[str, Style] = {"+": "green", "-": "red", "~": "yellow"}


def targets(difference: Difference, paint: Painter) -> list[str]:
    """One line per target."""
    rows = [(printable(one.target), *row(one)) for one in difference.targets]
    head = ("target", *COLUMNS)
    widths = [max(len(line[n]) for line in (head, *rows)) for n in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])

    return [paint(line(head).rstrip(), "bold"), *(line(cells).rstrip() for cells in rows)]


def changes(difference: Difference, width: int, paint: Painter) -> Iterator[list[str]]:
    """Distributions and verdicts that differ, then findings that are gone, then notes."""
    for group in alike(difference):
        lines = [paint(printable(f"changes for {listing(group.targets, 8)}"), "bold")]
        for block in group.blocks:
            lines.append(f"  {printable(block.title)}")
            for one in block.rows:
                text = "  ".join(part for part in (one.what, one.change) if part)
                more = f"  ({one.more})" if one.more else ""
                lines.append(f"  {paint(one.sign, _SIGNS[one.sign])} {printable(text + more)}")
            if block.left_out:
                lines.append(f"    and {block.left_out} more; --format json has them all")
        yield lines
    lost = gone(difference)
    if lost:
        yield [
            paint("gone", "bold"),
            *(
                line
                for one, names in lost
                for line in _wrapped(f"{one.rule} {one.message} ({listing(names, 8)})", width)
            ),
        ]
    if difference.notes:
        yield [
            paint("to know", "bold"),
            *(line for note in difference.notes for line in _wrapped(note, width)),
        ]
    yield [paint(printable(f"since {difference.ref}: {summary(difference)}"), "bold")]


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(
        printable(text),
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
