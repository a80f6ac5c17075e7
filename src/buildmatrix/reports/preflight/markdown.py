"""A preflight as Markdown, for the summary of a CI job: the ladder first, then what did not pass.

What passed, with its times, is folded.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.reports.markdown import end, fold, plain, rich
from buildmatrix.reports.preflight.model import (
    Check,
    CheckState,
    Preflight,
    PreflightTarget,
    RungOutcome,
)
from buildmatrix.reports.preflight.summary import name, totals, why
from buildmatrix.rules.rungs import RUNGS

_STATES: dict[CheckState, str] = {
    "passed": "ok",
    "failed": "**failed**",
    "undecided": "**undecided**",
    "not-run": "not run",
    "accepted": "accepted",
}
#: Checks of one rung that are listed before the rest is folded, and reasons of one image.
_SHOWN = 20


def render(preflight: Preflight) -> str:
    """The preflight as GitHub-flavored Markdown."""
    lines = ["## buildmatrix preflight", "", f"**{totals(preflight)}**", "", *_ladder(preflight)]
    open_items = [item for target in preflight.targets for item in _open(target)]
    lines += ["", *open_items[:_SHOWN]] if open_items else []
    if len(open_items) > _SHOWN:
        lines += [*fold(f"{len(open_items) - _SHOWN} more"), *open_items[_SHOWN:], *end()]
    passed = [line for target in preflight.targets for line in _passed(target)]
    if passed:
        lines += [*fold("what passed"), *passed, *end()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _ladder(preflight: Preflight) -> Iterator[str]:
    present = {rung.rung for target in preflight.targets for rung in target.rungs}
    rungs = [rung for rung in RUNGS if rung in present]
    yield f"| image | node class | {' | '.join(rungs)} |"
    yield "|---" * (len(rungs) + 2) + "|"
    for target in preflight.targets:
        cells = " | ".join(_cell(target, rung) for rung in rungs)
        yield f"| {plain(target.id)} | {plain(target.node_class or '')} | {cells} |"


def _cell(target: PreflightTarget, rung: str) -> str:
    states = [outcome.state for outcome in target.rungs if outcome.rung == rung]
    if len(states) < 2:
        return "".join(_STATES[state] for state in states)
    # Several nodes of one class.
    return ", ".join(
        f"{states.count(state)} {_STATES[state]}" for state in _STATES if state in states
    )


def _open(target: PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        checks = [check for check in rung.checks if check.state != "passed"]
        if rung.state == "passed" and not checks:
            continue
        reason = why(rung)
        head = f"- {plain(_title(target, rung))}: {_STATES[rung.state]}"
        yield head + (f", {rich(reason)}" if reason else "")
        yield from (f"  - {_said(check)}" for check in checks)


def _passed(target: PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        if rung.state == "passed":
            took = f", {rung.seconds:.1f} s" if rung.seconds is not None else ""
            yield f"- {plain(_title(target, rung))}{took}"
            yield from (f"  - {_said(check)}" for check in rung.checks if check.state == "passed")


def _title(target: PreflightTarget, rung: RungOutcome) -> str:
    place = "" if rung.where == "here" else f" at {rung.where}"
    return f"{name(target)}{place}, {rung.rung}"


def _said(check: Check) -> str:
    state = "" if check.state == "passed" else f" {_STATES[check.state]}"
    return plain(check.subject) + state + (f": {rich(check.message)}" if check.message else "")
