"""Options of `build`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from buildmatrix.attestation.attach import Signer
from buildmatrix.engines.model import Surroundings
from buildmatrix.index.reading import Reader
from buildmatrix.rules.acceptance import FailOn
from buildmatrix.rules.rungs import Rung
from buildmatrix.vulnerabilities.advisories import AdvisoryOptions


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run of `build`."""

    surroundings: Surroundings = field(default_factory=Surroundings)
    #: Targets that are locked, built or judged at the same time; of builders, each builds as many.
    jobs: int = 3
    #: The buildx builders that share the targets; None is the current one.
    builders: tuple[str | None, ...] = (None,)
    #: Stop everything at the first target that is not green.
    fail_fast: bool = False
    #: Findings of this severity or above fail a gate.
    fail_on: FailOn = "error"
    #: What is undecided counts as a finding.
    strict: bool = False
    #: A lock that is missing or stale fails its target, instead of being made.
    locked: bool = False
    #: Resolve from what is on this machine.
    offline: bool = False
    #: Build again whatever the journal says; the builder's own cache still counts.
    rebuild: bool = False
    smoke: bool = True
    #: How far to climb the ladder of `preflight` with each image, as part of the gate `smoke`:
    #: `auto` is as far as this machine goes in seconds.
    preflight: Rung | Literal["auto"] | None = None
    push: bool = False
    #: Publish images without their tags, which `promote` sets.
    stage: bool = False
    #: Signs the verdicts of images that are published; None for images without verdicts.
    signer: Signer | None = None
    #: How to ask for advisories; None for not at all.
    asking: AdvisoryOptions | None = None
    #: Reads locked wheels on their index, to know before the build what they bring; None for not.
    reader: Reader | None = None
    #: Fingerprints of findings that a baseline has.
    known_findings: frozenset[str] = frozenset()
    #: The day that waivers are held against.
    today: date = field(default_factory=date.today)
