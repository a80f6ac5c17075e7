"""The parts of the table that `audit --diff` has: what a change brings, and what it takes away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.phrases import listing
from buildmatrix.reports.diff.table import SIGN_STYLES
from buildmatrix.reports.run.groups import FindingGroup
from buildmatrix.reports.run.model import Difference
from buildmatrix.reports.run.revision_words import COLUMNS, accepts, alike, gone, row, summary
from buildmatrix.reports.run.table_states import STATES
from buildmatrix.reports.terminal import Painter, wrapped
from buildmatrix.rules.model import TargetResult
from buildmatrix.text import printable


def accepted(difference: Difference, width: int, paint: Painter) -> list[str]:
    """Return what the change accepts by itself, which comes first."""
    sentence, lines = accepts(difference)
    if not sentence:
        return []
    head = f"{sentence}, by its waivers or its policy"
    return [paint(head, "bold"), *(part for text in lines for part in wrapped(text, width, "  "))]


def targets(difference: Difference, results: Sequence[TargetResult], paint: Painter) -> list[str]:
    """One line per target."""
    states = {result.id: STATES[result.gates.get("lock", "not-run")][0] for result in results}
    rows = [
        (printable(target.id), states.get(target.id, ""), *row(target))
        for target in difference.targets
    ]
    head = ("target", "audit", *COLUMNS)
    widths = [max(len(line[n]) for line in (head, *rows)) for n in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])

    return [paint(line(head).rstrip(), "bold"), *(line(cells).rstrip() for cells in rows)]


def changes(difference: Difference, width: int, paint: Painter) -> Iterator[list[str]]:
    """Distributions and verdicts that differ, then findings that are gone, then notes."""
    for group in alike(difference):
        names = listing(group.targets, 8)
        lines = [paint(printable(f"{group.block.title}: {names}"), "bold")]
        for item in group.block.rows:
            text = "  ".join(part for part in (item.subject, item.change) if part)
            more = f"  ({item.more})" if item.more else ""
            lines.append(f"  {paint(item.sign, SIGN_STYLES[item.sign])} {printable(text + more)}")
        if group.block.left_out:
            lines.append(f"    and {group.block.left_out} more; --format json has them all")
        yield lines
    lost = gone(difference)
    if lost:
        yield [
            paint("gone", "bold"),
            *(line for group in lost for line in wrapped(_gone(group), width, "  ", "    ")),
        ]
    if difference.notes:
        yield [
            paint("to know", "bold"),
            *(line for note in difference.notes for line in wrapped(note, width, "  ", "    ")),
        ]
    yield [paint(printable(f"since {difference.ref}: {summary(difference)}"), "bold")]


def _gone(group: FindingGroup) -> str:
    others = f", and with it {listing(group.others)}" if group.others else ""
    return "; ".join(
        f"{group.first.rule} {shared.text}{others} ({listing(shared.targets, 8)})"
        for shared in group.messages
    )
