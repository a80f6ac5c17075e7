"""The report of `promote`: moved tags, as data and text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from buildmatrix.base.text import count, printable
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Data


#: `already`: the tag named the image before, perhaps since an earlier run that was stopped.
MoveState = Literal["moved", "already", "failed", "not-tried"]


@dataclass(frozen=True, slots=True)
class TagMove:
    """One tag, and the image that it is to name."""

    #: `ghcr.io/acme/inferno:1.4.0-cpu`
    reference: str
    target: str
    digest: str
    #: What it named before this run, to go back to; None for a tag that was not there, and where
    #: it was not asked for.
    before: str | None = None
    state: MoveState = "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Result of `promote`."""

    schema: Literal["buildmatrix/promotion/1"] = "buildmatrix/promotion/1"
    tool: Tool = THIS_TOOL
    #: Digest of the built image.
    subject: str
    #: True if all tags name their images now.
    promoted: bool
    moves: tuple[TagMove, ...]
    #: Why not; one sentence each.
    problems: tuple[str, ...] = ()


# Text


def render_promotion(promotion: Promotion, *, width: int, color: bool) -> str:
    """Each tag with what it names now and named before, then what went wrong."""
    paint = Painter(color)
    return "\n".join(_promotion_lines(promotion, max(width, 40), paint)) + "\n"


def _promotion_lines(promotion: Promotion, width: int, paint: Painter) -> Iterator[str]:
    for move in promotion.moves:
        word = state_word(move.state).ljust(9)
        yield f"{paint.state(move.state, word)}  {printable(move.reference)}"
        before = f" (before: {move.before or 'no such tag'})" if move.state == "moved" else ""
        yield f"           {move.digest}{before}"
    for problem in promotion.problems:
        for line in wrapped(problem, width):
            yield paint(line, "red")
    moved = sum(move.state == "moved" for move in promotion.moves)
    already = sum(move.state == "already" for move in promotion.moves)
    rest = len(promotion.moves) - moved - already
    parts = [f"{count(moved, 'tag')} moved", f"{already} there already"]
    yield ", ".join([*parts, f"{rest} not set"] if rest else parts)
