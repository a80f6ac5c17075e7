"""The report of `preflight`: staged checks of images, and their totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct, field

from buildmatrix.base.text import count, each_text, printable, shown
from buildmatrix.matrix.model import RUNGS, Rung
from buildmatrix.reports.run import ReportTool
from buildmatrix.reports.sections import Row, Section

# Data


#: `not-run`: it was not tried, and `why` says why. `undecided`: it was tried without an answer.
RungState: TypeAlias = Literal["passed", "failed", "undecided", "not-run"]
#: `accepted`: it failed, and a `[[waive-check]]` says that it may.
CheckState: TypeAlias = Literal["passed", "failed", "undecided", "not-run", "accepted"]
#: Values of a check: names in snake case, with their unit (`seconds`, `bytes`, `gbps`).
Value: TypeAlias = str | float | int | bool | list[str | float] | dict[str, float] | None


class Check(Struct, frozen=True):
    """One thing that a rung looked at: an import, a device, a GEMM of one framework and type."""

    #: Subject: `torch`, `torch cuda:0 float32`, `smoke warmup`.
    subject: str
    state: CheckState
    #: One sentence: what failed and what to do, or what was seen.
    message: str = ""
    seconds: float | None = None
    values: dict[str, Value] = field(default_factory=dict)


class RungOutcome(Struct, frozen=True):
    """Outcome of one rung in one place."""

    rung: Rung
    state: RungState
    checks: tuple[Check, ...] = ()
    #: Why it was not run, or is undecided.
    why: str = ""
    #: Node classes whose machines have to run it; empty where nothing more is needed.
    run_on: tuple[str, ...] = ()
    #: Where it ran: `here`, or the name of a node.
    where: str = "here"
    #: Machines that ran it together, `where` being the first.
    nodes: int = 1
    seconds: float | None = None


class PreflightTarget(Struct, frozen=True):
    """One image, on one node class or on none in particular."""

    #: The target's identifier, or the name of an image that is not a target.
    id: str
    backend: str
    rungs: tuple[RungOutcome, ...]
    image: str | None = None
    #: Digest of the image, by which results of other machines are joined.
    digest: str | None = None
    node_class: str | None = None
    #: Sandbox that an environment's commands ran in: `crun`, or `none`; empty for an image.
    sandbox: str = ""


class Preflight(Struct, frozen=True):
    """Preflight results of the images of a run."""

    tool: ReportTool
    targets: tuple[PreflightTarget, ...]
    schema: Literal["buildmatrix/preflight/1"] = "buildmatrix/preflight/1"


def state_of(checks: tuple[Check, ...]) -> RungState:
    """A rung fails with one of its checks, and passes only where each that ran has passed.

    A failure that was accepted counts like a finding that was: it stops nothing.
    """
    states = {check.state for check in checks}
    if "failed" in states:
        return "failed"
    if "undecided" in states:
        return "undecided"
    return "passed" if states & {"passed", "accepted"} else "not-run"


# Words that all formats share


#: The worst first.
_WORST: tuple[RungState, ...] = ("failed", "undecided", "passed", "not-run")


def remove_secrets(preflight: Preflight) -> Preflight:
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
    """The state that decides; rungs that did not run pass nothing."""
    return next((state for state in _WORST if states[state]), "not-run")


def ladder(preflight: Preflight) -> Section:
    """The state of each rung of each image, at all places where it ran; the rest as the lead."""
    present = {rung.rung for target in preflight.targets for rung in target.rungs}
    rungs = [rung for rung in RUNGS if rung in present]
    return Section(
        "ladder",
        "The ladder",
        ("image", "node class", *rungs),
        tuple(
            Row((title(target), target.node_class or "", *(_cell(target, rung) for rung in rungs)))
            for target in preflight.targets
        ),
        states=frozenset(range(2, 2 + len(rungs))),
        subject=0,
        lead=f"To be run {waiting}" if (waiting := "; ".join(_waiting(preflight))) else "",
    )


def _cell(target: PreflightTarget, rung: Rung) -> str:
    """Return the state of a rung; nothing if it was not requested."""
    states = Counter(outcome.state for outcome in target.rungs if outcome.rung == rung)
    if not states:
        return ""
    nodes = count(states.total(), "node")
    several = f" ({states['passed']} of {nodes} passed)" if states.total() > 1 else ""
    return worst(states) + several


def _waiting(preflight: Preflight) -> Iterator[str]:
    """The images and rungs that wait for a machine of each node class."""
    waiting: dict[str, dict[str, list[str]]] = {}
    for target in preflight.targets:
        for rung in target.rungs:
            for node in rung.run_on:
                waiting.setdefault(node, {}).setdefault(target.id, []).append(rung.rung)
    for node, images in waiting.items():
        every = (f"{id} ({', '.join(rungs)})" for id, rungs in images.items())
        yield f"on {node}: {', '.join(every)}"


def title(target: PreflightTarget) -> str:
    """The image, or the environment and its sandbox."""
    within = "without a sandbox" if target.sandbox == "none" else f"in {target.sandbox}"
    return f"{target.id} {within}" if target.sandbox else target.id


def name(target: PreflightTarget) -> str:
    """The image and the node class that it ran on, if any."""
    on = f" on {target.node_class}" if target.node_class else ""
    return title(target) + on


def place(rung: RungOutcome) -> str:
    """` at NODE`; empty for this machine."""
    return "" if rung.where == "here" else f" at {rung.where}"


def why(rung: RungOutcome) -> str:
    """Explain why a rung did not run or is undecided, and name the machine that has to run it."""
    on = ", ".join(rung.run_on)
    return "; ".join(filter(None, (rung.why, on and f"to be run on {on}")))
