"""A preflight as an HTML page: the ladder of each image, times as pictures, then every check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from buildmatrix.phrases import count
from buildmatrix.reports.page import document
from buildmatrix.reports.preflight.model import (
    CheckState,
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
)
from buildmatrix.reports.preflight.strips import Strip, strips
from buildmatrix.reports.preflight.summary import counts, name, totals, why, worst
from buildmatrix.rules.rungs import RUNGS, Rung

_STATES: Mapping[CheckState, str] = {
    "passed": "passed",
    "failed": "failed",
    "undecided": "undecided",
    "not-run": "not run",
    "accepted": "accepted",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A rung of one image, at all places where it ran."""

    state: RungState
    #: `2 of 3 nodes` where several ran it.
    text: str
    #: Why, in one sentence; empty where it passed.
    why: str


@dataclass(frozen=True, slots=True)
class Timed:
    """The pictures of one rung of an image."""

    title: str
    strips: tuple[Strip, ...]


def render(preflight: Preflight) -> str:
    """The preflight as one document; the same preflight gives the same bytes."""
    present = {rung.rung for target in preflight.targets for rung in target.rungs}
    rungs = [rung for rung in RUNGS if rung in present]
    states = counts(preflight)
    return document.render(
        "preflight/page/preflight.html.j2",
        styles=["preflight/page/preflight.css"],
        preflight=preflight,
        state=worst(states),
        headline=_headline(states),
        totals=totals(preflight),
        counts=[(_STATES[state], states[state]) for state in get_args(RungState)],
        rungs=rungs,
        cells={id(target): [_cell(target, rung) for rung in rungs] for target in preflight.targets},
        identity=id,
        states=_STATES,
        timed=_timed(preflight),
        name=name,
        why=why,
        waiting=_waiting(preflight),
    )


def _headline(states: Counter[RungState]) -> str:
    if states["failed"]:
        return f"{count(states['failed'], 'rung')} failed"
    if states["undecided"]:
        return f"{count(states['undecided'], 'rung')} undecided"
    if not states["passed"]:
        return "Nothing ran"
    if states["not-run"]:
        return f"All that ran passed; {count(states['not-run'], 'rung')} did not run"
    return "All rungs passed"


def _cell(target: PreflightTarget, rung: Rung) -> Cell | None:
    """Return the cell of a rung; None if it was not requested."""
    outcomes = [outcome for outcome in target.rungs if outcome.rung == rung]
    if not outcomes:
        return None
    states = Counter(outcome.state for outcome in outcomes)
    state = worst(states)
    text = _STATES[state]
    if len(outcomes) > 1:
        text = f"{states['passed']} of {count(len(outcomes), 'node')} passed"
    reasons = dict.fromkeys(why(outcome) for outcome in outcomes if outcome.state != "passed")
    return Cell(state, text, "; ".join(filter(None, reasons)))


def _timed(preflight: Preflight) -> Sequence[Timed]:
    """The rungs that have pictures: how long a start takes first, which is what users feel."""
    every = [
        Timed(_title(target, rung), drawn)
        for target in preflight.targets
        for rung in target.rungs
        if (drawn := strips(rung))
    ]
    return sorted(every, key=lambda timed: "cold-start" not in timed.title)


def _title(target: PreflightTarget, rung: RungOutcome) -> str:
    place = "" if rung.where == "here" else f" at {rung.where}"
    return f"{rung.rung} of {name(target)}{place}"


def _waiting(preflight: Preflight) -> Sequence[tuple[str, str]]:
    """Node class → the images and rungs that wait for one of its machines."""
    waiting: dict[str, dict[str, list[str]]] = {}
    for target in preflight.targets:
        for rung in target.rungs:
            for node in rung.run_on:
                waiting.setdefault(node, {}).setdefault(target.id, []).append(rung.rung)
    return [
        (node, "; ".join(f"{id}: {', '.join(rungs)}" for id, rungs in images.items()))
        for node, images in waiting.items()
    ]
