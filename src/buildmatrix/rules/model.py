"""Findings, verdicts and gates: what a run says about its targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.catalogue.model import Evidence

Severity = Literal["error", "warning", "note"]
VerdictName = Literal["ok", "optional", "bloat", "broken"]
Gate = Literal["lock", "build", "scan", "smoke"]
GateState = Literal["passed", "failed", "undecided", "not-run"]

#: Gates in the order in which a target meets them.
GATES: tuple[Gate, ...] = ("lock", "build", "scan", "smoke")


@dataclass(frozen=True, slots=True)
class Fix:
    """What makes a finding go away."""

    #: `replace`, `remove`, `index`, `pin`, `waive`, `base`, `rebuild`, `upgrade`.
    kind: str
    text: str
    patch: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's statement about a target."""

    rule: str
    name: str
    severity: Severity
    target: str
    backend: str
    vendor: str | None
    message: str
    distribution: str | None = None
    version: str | None = None
    path: str | None = None
    evidence: tuple[Evidence, ...] = ()
    #: From the requirement line to the file: `requirements.in:3`, `xgboost 3.4.1`, a path.
    chain: tuple[str, ...] = ()
    fix: Fix | None = None
    #: Reason of the waiver that covers it, if any.
    waived: str | None = None
    #: Stable across runs and machines; see `rules.engine`.
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one distribution is on one backend."""

    name: str
    version: str
    backend: str
    verdict: VerdictName
    reason: str
    foreign_bytes: int = 0
    vendors: tuple[str, ...] = ()
    architectures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetResult:
    """The gates of one target, and what was built for it."""

    id: str
    backend: str
    gates: Mapping[Gate, GateState]
    image: str | None = None
    digest: str | None = None
    #: Bytes of the root file system, where it was scanned.
    size: int | None = None
    #: Log file of the build, relative to the specification.
    log: str | None = None
    #: One sentence where a gate failed for a reason that is no finding.
    error: str | None = None
    seconds: float = 0.0
    #: True where the journal says that nothing had to be done.
    cached: bool = False
    #: Smoke commands that were asked for and that this machine cannot run: `warmup (batch)`.
    smoke_not_run: tuple[str, ...] = ()
