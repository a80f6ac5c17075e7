"""One target on its way through the gates of a build: its state so far, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from buildmatrix.engines.model import BuildJob
from buildmatrix.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Lock
from buildmatrix.rules.composition import Composition
from buildmatrix.rules.model import (
    GATES,
    BuilderAttempt,
    ClimbedRung,
    Finding,
    Gate,
    GateState,
    NodeFit,
    StagedImage,
    TargetResult,
    Verdict,
)
from buildmatrix.spec.model import Target
from buildmatrix.state.folder import TargetFiles
from buildmatrix.state.journal import BuildRecord

#: The later, the worse.
_WORSE: tuple[GateState, ...] = ("not-run", "passed", "undecided", "failed")


@dataclass(slots=True)
class BuildWork:
    """One target on its way through the gates."""

    target: Target
    files: TargetFiles
    lock: Lock | None = None
    job: BuildJob | None = None
    #: By which the journal knows again what a builder makes of it.
    key_on: Callable[[str | None], str] = lambda _: ""
    record: BuildRecord | None = None
    #: The builder that made the last image, whatever that was made of.
    home: str | None = None
    #: Builders that had it in this run, in their order.
    attempts: list[BuilderAttempt] = field(default_factory=list)
    cached: bool = False
    #: What of its inventory goes into the report: inventories are large, and there are many.
    scanned: Inventory | None = None
    gates: dict[Gate, GateState] = field(default_factory=lambda: dict.fromkeys(GATES, "not-run"))
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    #: What the image does on the node classes.
    nodes: tuple[NodeFit, ...] | None = None
    #: Whose its bytes are.
    composition: Composition | None = None
    #: Why gates did not hold, where it is no finding, and exit codes that only this says.
    errors: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    #: Why `auto` climbed no rung with its image, where that is so.
    why_no_climb: BuildmatrixError | None = None
    #: How far its image got on the ladder, where it was to climb it.
    rungs: tuple[ClimbedRung, ...] | None = None
    #: Where publishing was asked for: how it went, and the digest in the registry.
    push: GateState | None = None
    pushed: str | None = None
    staged: StagedImage | None = None
    #: Digest of what holds its signed verdict.
    attestation: str | None = None
    #: Seconds that its gates took in this run.
    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def timed(self) -> Iterator[None]:
        """A block that works on this target; none within another."""
        began = self.clock()
        try:
            yield
        finally:
            self.seconds += self.clock() - began

    def fail(self, gate: Gate, error: BuildmatrixError) -> None:
        """Note why a gate did not hold."""
        decided = isinstance(error, BuildError) or error.exit_code in (1, 2)
        self.gates[gate] = "failed" if decided else "undecided"
        self.errors.append(error.message)
        if not isinstance(error, UndecidedError):
            self.codes.append(error.exit_code)

    def merge_state(self, gate: Gate, state: GateState) -> None:
        """Add the state of a further part of a gate: the worst of its parts counts."""
        self.gates[gate] = max(self.gates[gate], state, key=_WORSE.index)

    def fail_to_publish(self, what: str, error: BuildmatrixError) -> None:
        """Note why publishing stopped at this target; `what` is what it is not."""
        self.push = "failed" if isinstance(error, BuildError) else "undecided"
        self.errors.append(f"{what}: {error.message}")

    def place_on(self, builder: str | None) -> None:
        """Say who builds it, or has built it."""
        if self.job is not None:
            self.job = replace(self.job, builder=builder)

    def demand(self, gates: Collection[str], no_smoke: BuildmatrixError) -> None:
        """Leave it open that a gate did not run that the policy requires, where nothing failed.

        `no_smoke` is why nothing ran in its image; its exit code is that of the gate `smoke`.
        """
        if self.red or self.errors:
            return
        for gate, state in self.gates.items():
            if gate in gates and state == "not-run":
                said = (
                    f"the gate {gate} did not run, and `gates` under [policy] requires it for "
                    f"{self.target.backend}"
                )
                why = no_smoke.saying(f"{said}: {no_smoke.message}")
                self.fail(gate, why if gate == "smoke" else UndecidedError(said))

    @property
    def key(self) -> str:
        """The key of what its builder makes."""
        return self.key_on(self.job.builder if self.job is not None else None)

    @property
    def green(self) -> bool:
        """True if all gates passed; smoke may not have run."""
        held = all(self.gates[gate] == "passed" for gate in ("lock", "build", "scan"))
        return held and self.gates["smoke"] in {"passed", "not-run"}

    @property
    def red(self) -> bool:
        """True if a gate failed; others may still have to run."""
        return any(state in {"failed", "undecided"} for state in self.gates.values())

    @property
    def _image(self) -> str:
        """The image on this machine by its name there, else the name that it would get."""
        if self.record is not None and self.record.loaded and self.record.tags:
            return self.record.tags[0]
        return self.target.references[0] if self.target.tags else self.target.image

    def outcome(self) -> str:
        """One line for the progress display."""
        if self.errors:
            return self.errors[0].splitlines()[0]
        if not self.green:
            gate = next(gate for gate in GATES if self.gates[gate] != "passed")
            findings = sum(finding.waived is None for finding in self.findings)
            count = "1 finding" if findings == 1 else f"{findings} findings"
            return f"{gate} {self.gates[gate]}, {count}"
        return "nothing to do" if self.cached else "built"

    def result(self, root: Path, smoke_not_run: tuple[str, ...]) -> TargetResult:
        """Return the target's part of the report; paths are relative to the specification's folder
        `root`.
        """
        record, target = self.record, self.target
        # A log of an earlier run says nothing of this one.
        log = self.files.log if self.gates["build"] != "not-run" else None
        return TargetResult(
            id=target.id,
            backend=target.backend,
            gates=dict(self.gates),
            image=self._image,
            digest=self.pushed or (record.digest if record else None),
            size=self.scanned.stats.bytes_total if self.scanned else None,
            log=log.relative_to(root).as_posix() if log and log.is_file() else None,
            error="\n".join(self.errors) or None,
            seconds=self.seconds,
            cached=self.cached,
            smoke_not_run=smoke_not_run,
            push=self.push,
            staged=self.staged,
            attestation=self.attestation,
            bases=record.bases if record else {},
            nodes=self.nodes,
            composition=self.composition,
            builders=tuple(self.attempts) or None,
            rungs=self.rungs,
        )
