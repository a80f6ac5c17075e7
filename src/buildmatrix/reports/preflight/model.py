"""The data of a preflight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from buildmatrix.reports.run.model import ReportTool
from buildmatrix.rules.rungs import Rung

#: `not-run`: nobody tried, and `why` says why. `undecided`: it was tried, and nobody knows.
RungState: TypeAlias = Literal["passed", "failed", "undecided", "not-run"]
#: `accepted`: it failed, and a `[[waive-check]]` says that it may.
CheckState: TypeAlias = Literal["passed", "failed", "undecided", "not-run", "accepted"]
#: What a check measured or read: names in snake case, with their unit (`seconds`, `bytes`, `gbps`).
Value: TypeAlias = str | float | int | bool | list[str | float] | dict[str, float] | None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a rung looked at: an import, a device, a GEMM of one framework and type."""

    #: What was looked at: `torch`, `torch cuda:0 float32`, `smoke warmup`.
    subject: str
    state: CheckState
    #: One sentence: what failed and what to do, or what was seen.
    message: str = ""
    seconds: float | None = None
    values: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RungOutcome:
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


@dataclass(frozen=True, slots=True)
class PreflightTarget:
    """One image, on one node class or on none in particular."""

    #: The target's identifier, or the name of an image that is no target.
    id: str
    backend: str
    rungs: tuple[RungOutcome, ...]
    image: str | None = None
    #: Digest of the image, by which results of other machines are joined.
    digest: str | None = None
    node_class: str | None = None


@dataclass(frozen=True, slots=True)
class Preflight:
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
