"""A promotion as text for a terminal or a CI log."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count
from buildmatrix.reports.promote.model import MoveState, Promotion, TagMove
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.text import printable

_STATES: dict[MoveState, tuple[str, Style]] = {
    "moved": ("moved", "green"),
    "already": ("already", "green"),
    "failed": ("FAILED", "red"),
    "not-tried": ("-", "dim"),
}


def render(promotion: Promotion, *, width: int, color: bool) -> str:
    """Each tag with what it names now and named before, then what went wrong."""
    paint = Painter(color)
    return "\n".join(_lines(promotion, max(width, 40), paint)) + "\n"


def _lines(promotion: Promotion, width: int, paint: Painter) -> Iterator[str]:
    for move in promotion.moves:
        word, style = _STATES[move.state]
        yield f"{paint(word.ljust(7), style)}  {printable(move.reference)}"
        yield f"         {_digests(move)}"
    for problem in promotion.problems:
        for line in wrapped(problem, width):
            yield paint(line, "red")
    moved = sum(move.state == "moved" for move in promotion.moves)
    already = sum(move.state == "already" for move in promotion.moves)
    rest = len(promotion.moves) - moved - already
    parts = [f"{count(moved, 'tag')} moved", f"{already} there already"]
    yield ", ".join([*parts, f"{rest} not set"] if rest else parts)


def _digests(move: TagMove) -> str:
    if move.state == "moved":
        return f"{move.digest} (before: {move.before or 'no such tag'})"
    return move.digest
