"""A preflight as text for a terminal or a CI log."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count
from buildmatrix.reports.preflight.model import (
    CheckState,
    Preflight,
    PreflightTarget,
    RungOutcome,
    Value,
)
from buildmatrix.reports.preflight.summary import name, totals
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.text import printable

_STATES: dict[CheckState, tuple[str, Style]] = {
    "passed": ("passed", "green"),
    "failed": ("FAILED", "red"),
    "undecided": ("open", "yellow"),
    "not-run": ("-", "dim"),
    "accepted": ("accepted", "dim"),
}
#: Checks of a rung that are listed where all have passed.
_SHOWN = 3
_BARS = "▁▂▃▄▅▆▇█"


def render(preflight: Preflight, *, width: int, color: bool) -> str:
    """Each image with its rungs; what did not pass is listed whole."""
    paint, width = Painter(color), max(width, 40)
    lines: list[str] = []
    for target in preflight.targets:
        lines += [*_target(target, width, paint), ""]
    lines.append(totals(preflight))
    return "\n".join(lines) + "\n"


def _target(target: PreflightTarget, width: int, paint: Painter) -> Iterator[str]:
    yield paint(printable(name(target)), "bold")
    for rung in target.rungs:
        yield from _rung(rung, width, paint)


def _rung(rung: RungOutcome, width: int, paint: Painter) -> Iterator[str]:
    word, style = _STATES[rung.state]
    passed = [check for check in rung.checks if check.state == "passed"]
    others = [check for check in rung.checks if check.state != "passed"]
    said = f"{len(passed)} of {count(len(rung.checks), 'check')}" if rung.checks else ""
    took = f"{rung.seconds:.1f} s" if rung.seconds is not None else ""
    place = rung.where if rung.where != "here" else ""
    details = ", ".join(part for part in (said, took, place) if part)
    yield f"  {rung.rung.ljust(10)}  {paint(word.ljust(6), style)}  {printable(details)}".rstrip()
    if rung.why:
        yield from wrapped(printable(rung.why), width, indent="    ")
    if rung.run_on:
        classes = ", ".join(rung.run_on)
        yield from wrapped(f"to be run on {printable(classes)}", width, indent="    ")
    slow = sorted(passed, key=lambda check: -(check.seconds or 0))[:_SHOWN]
    for check in (*others, *(slow if not others else ())):
        state, shade = _STATES[check.state]
        seconds = f" ({check.seconds:.2f} s)" if check.seconds is not None else ""
        message = f": {check.message}" if check.message else ""
        text = printable(f"{check.subject}{seconds}{message}")
        first, *rest = wrapped(f"{state} {text}", width, indent="    ")
        yield first.replace(state, paint(state, shade), 1)
        yield from rest
        if picture := _bars(check.values.get("samples_s")):
            yield f"    {picture}"


def _bars(samples: Value) -> str:
    """The runs of a check as bars, in their order, from nothing up to the slowest."""
    times = (
        [time for time in samples if isinstance(time, float)] if isinstance(samples, list) else []
    )
    slowest = max(times, default=0.0)
    if len(times) < 2 or slowest <= 0:
        return ""
    return "".join(_BARS[min(int(time / slowest * len(_BARS)), len(_BARS) - 1)] for time in times)
