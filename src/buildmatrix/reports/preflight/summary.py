"""Summary of a preflight, in the words that all formats share."""

from __future__ import annotations

from collections import Counter

from buildmatrix.phrases import count
from buildmatrix.reports.preflight.model import (
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
)
from buildmatrix.text import each_text, printable, shown

#: The worst first.
_WORST: tuple[RungState, ...] = ("failed", "undecided", "passed", "not-run")


def without_secrets(preflight: Preflight) -> Preflight:
    """The preflight as it may be shown: each text on one line, no address with its login."""
    return each_text(preflight, lambda text: printable(shown(text)))


def totals(preflight: Preflight) -> str:
    """`2 images: 5 of 16 rungs passed, 1 failed, 0 undecided, 10 not run`."""
    states = counts(preflight)
    return (
        f"{count(len(preflight.targets), 'image')}: {states['passed']} of "
        f"{count(states.total(), 'rung')} passed, {states['failed']} failed, "
        f"{states['undecided']} undecided, {states['not-run']} not run"
    )


def counts(preflight: Preflight) -> Counter[RungState]:
    """Count the rungs in each state."""
    return Counter(rung.state for target in preflight.targets for rung in target.rungs)


def worst(states: Counter[RungState]) -> RungState:
    """The state that decides; nothing but rungs that nobody ran has passed nothing."""
    return next((state for state in _WORST if states[state]), "not-run")


def name(target: PreflightTarget) -> str:
    """The image and the node class that it ran on, if any."""
    return f"{target.id} on {target.node_class}" if target.node_class else target.id


def why(rung: RungOutcome) -> str:
    """Why a rung did not run or is not decided, and who has to run it."""
    on = ", ".join(rung.run_on)
    return "; ".join(filter(None, (rung.why, on and f"to be run on {on}")))
