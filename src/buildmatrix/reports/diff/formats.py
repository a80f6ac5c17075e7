"""A comparison, and drift between targets, for a terminal and as Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.base.text import printable
from buildmatrix.reports import markdown, terminal
from buildmatrix.reports.diff import drift
from buildmatrix.reports.diff.drift import Drifts
from buildmatrix.reports.diff.model import Comparison
from buildmatrix.reports.diff.sections import end, sections, state_of, summary
from buildmatrix.reports.markdown import plain
from buildmatrix.reports.sections import Section

_HINT = "--all lists everything"


def render_table(comparison: Comparison, *, width: int, color: bool, every: bool = False) -> str:
    """The comparison as text, wrapped at `width` columns."""
    paint = terminal.Painter(color)
    ends = [
        f"{sign} {paint(printable(side.source), 'bold')}  {printable(end(side))}"
        for sign, side in (("-", comparison.before), ("+", comparison.after))
    ]
    last = paint.state(state_of(comparison), printable(summary(comparison)), "bold")
    return _table(sections(comparison, every=every), width, paint, "\n".join(ends), last)


def render_drift_table(drifts: Drifts, *, width: int, color: bool, every: bool = False) -> str:
    """The drift as text, wrapped at `width` columns."""
    paint = terminal.Painter(color)
    last = paint.state(drift.state_of(drifts), drift.summary(drifts), "bold")
    return _table(drift.sections(drifts, every=every), width, paint, "", last)


def _table(
    sections: Sequence[Section], width: int, paint: terminal.Painter, first: str, last: str
) -> str:
    drawn = map("\n".join, terminal.draw(sections, max(width, 60), paint))
    return "\n\n".join(filter(None, (first, *drawn, _hint(sections), last))) + "\n"


def _hint(sections: Sequence[Section]) -> str:
    return _HINT if any(section.more for section in sections) else ""


def render_markdown(comparison: Comparison, *, every: bool = False) -> str:
    """The comparison as GitHub-flavored Markdown."""
    first = (
        f"{plain(comparison.before.source)} ({plain(end(comparison.before))}) &rarr; ",
        f"{plain(comparison.after.source)} ({plain(end(comparison.after))})",
        "",
        f"**{plain(summary(comparison))}**",
    )
    made = sections(comparison, every=every)
    return "\n".join(_markdown("what changed", first, made)) + "\n"


def render_drift_markdown(drifts: Drifts, *, every: bool = False) -> str:
    """The drift as GitHub-flavored Markdown."""
    made = drift.sections(drifts, every=every)
    first = (f"{plain(drift.summary(drifts))}.",)
    return "\n".join(_markdown("drift between targets", first, made)) + "\n"


def _markdown(title: str, first: Sequence[str], sections: Sequence[Section]) -> Iterator[str]:
    yield from (f"## buildmatrix: {title}", "", *first, "")
    yield from markdown.draw(sections)
    yield from filter(None, (_hint(sections),))
