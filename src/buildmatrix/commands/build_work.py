"""State and result of one target in a build, and the schedule of its builders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Ending, Progress
from buildmatrix.commands.options import BuildOptions
from buildmatrix.engines.model import BuildJob, Engine, Surroundings
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.advisories import AdvisoryOptions
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import (
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
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Rung, Spec, Target
from buildmatrix.sources.state_folder import BuildRecord, TargetFiles

if TYPE_CHECKING:
    from buildmatrix.signing.attached import Signer


@dataclass(frozen=True, kw_only=True)
class Options(BuildOptions):
    """Options of a run of `build`, and what was made of them."""

    surroundings: Surroundings = field(default_factory=Surroundings)
    builders: Sequence[str | None] = (None,)
    #: How far to climb the ladder of `preflight` with each image, as part of the gate `smoke`:
    #: `auto` is as far as this machine goes in seconds.
    preflight: Rung | Literal["auto"] | None = None
    #: Signs the verdicts of images that are published; None for images without verdicts.
    signer: Signer | None = None
    audit: bool = False
    #: How to ask for advisories; None for not at all.
    asking: AdvisoryOptions | None = None
    #: Fingerprints of findings that a baseline has.
    known_findings: frozenset[str] = frozenset()
    #: The day that waivers are held against.
    today: date = field(default_factory=date.today)


class Gates(Struct):
    """Base of the gates: what all of a run share."""

    spec: Spec
    options: Options
    engine: Engine
    judge: Judge
    progress: Progress

    @property
    def shared(self) -> tuple[Spec, Options, Engine, Judge, Progress]:
        """The same, for other gates."""
        return self.spec, self.options, self.engine, self.judge, self.progress


#: The later, the worse.
_WORSE: tuple[GateState, ...] = ("not-run", "passed", "undecided", "failed")


class BuildWork(Struct):
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
    attempts: list[BuilderAttempt] = msgspec.field(default_factory=list)
    cached: bool = False
    #: Part of its inventory for the report: inventories are large, and there are many.
    scanned: Inventory | None = None
    gates: dict[Gate, GateState] = msgspec.field(
        default_factory=lambda: dict.fromkeys(GATES, "not-run")
    )
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    #: States of the image on node classes.
    nodes: tuple[NodeFit, ...] | None = None
    #: Owners of its bytes.
    composition: Composition | None = None
    #: Why gates did not hold, where it is no finding, and exit codes that only this says.
    errors: list[str] = msgspec.field(default_factory=list)
    codes: list[int] = msgspec.field(default_factory=list)
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
        """Key of its builder's result."""
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

    @property
    def ending(self) -> Ending:
        """State for the progress display."""
        if self.green and not self.errors:
            return "passed"
        return "failed" if "failed" in (*self.gates.values(), self.push) else "undecided"

    def outcome(self) -> str:
        """One line for the progress display."""
        if self.errors:
            return self.errors[0].splitlines()[0]
        if not self.green:
            ending = self.ending
            gate = next(
                (gate for gate in GATES if self.gates[gate] == ending),
                next(gate for gate in GATES if self.gates[gate] != "passed"),
            )
            findings = sum(finding.waived is None for finding in self.findings)
            count = "1 finding" if findings == 1 else f"{findings} findings"
            return f"at {gate}, {count}"
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


# Schedule of several builders.
#
# A free slot takes the waiting target for which its builder's cache is warmest: one that shares a
# lock or a base with targets built by this builder and no other.


class Slot(Struct):
    """A place on a builder, and the target that holds it until it is done."""

    builder: str | None
    work: BuildWork


class Builders:
    """The slots of all builders, and the targets that wait for one; threads share it."""

    def __init__(
        self, names: Sequence[str | None], jobs: int, waiting: Sequence[BuildWork]
    ) -> None:
        """`jobs` targets at a time on each of the builders `names`."""
        self._changed = threading.Condition()
        self._free = dict.fromkeys(names, jobs)
        self._waiting = list(waiting)
        #: Known contents of each builder's cache, from the journal and this run.
        self._warm = {
            name: {part for work in waiting if work.home == name for part in _parts(work)}
            for name in names
        }
        #: How many targets wait to be taken to another builder.
        self._moving = 0
        self._stopped = False

    @contextmanager
    def slot(self) -> Iterator[Slot | None]:
        """A slot with the target for it, as soon as one is free; None once the run stops."""
        with self._changed:
            # Those first that lost their builder: who waits for the run hears of it then.
            self._changed.wait_for(
                lambda: self._stopped or (any(self._free.values()) and not self._moving)
            )
            slot = None if self._stopped or not self._waiting else self._taken()
        try:
            yield slot
        finally:
            if slot is not None:
                self._give_back(slot.builder)

    def move(self, slot: Slot) -> bool:
        """Take a target from its builder, which died, to another one; False where there is none.

        A builder that died gets no more targets, unless it is the last. Blocks until a slot is
        free. A run that stops moves nothing.
        """
        with self._changed:
            others = [name for name in self._free if name != slot.builder]
            if not others:
                return False
            self._free.pop(slot.builder, None)
            # Builders may die while this waits, and the last one stays.
            self._moving += 1
            self._changed.wait_for(lambda: self._stopped or any(self._free.values()))
            self._moving -= 1
            self._changed.notify_all()
            if self._stopped:
                return False
            slot.builder = max(self._free, key=lambda name: self._free[name])
            self._hold(slot)
            return True

    def stop(self) -> None:
        """Hand out nothing more, and wake everyone who waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _taken(self) -> Slot:
        first = self._waiting[0]
        if len(self._free) == 1 or first.record is not None:
            # There is no choice, or nothing to be built.
            builder = max(self._free, key=lambda name: self._free[name])
            return self._hold(Slot(builder, self._waiting.pop(0)))
        slots = [
            Slot(builder, work)
            for builder, free in self._free.items()
            if free
            for work in self._waiting
        ]
        # The first of the best: the matrix has neighbors that share most.
        best = max(slots, key=lambda slot: (self._warmth(slot), self._free[slot.builder]))
        # By identity: works are compared field by field.
        self._waiting = [work for work in self._waiting if work is not best.work]
        return self._hold(best)

    def _warmth(self, slot: Slot) -> int:
        """Return how much more of the target this builder has cached than any other."""
        parts = _parts(slot.work)
        shared = {name: len(parts & warm) for name, warm in self._warm.items()}
        own = shared.pop(slot.builder)
        return own - max((shared[name] for name in shared if name in self._free), default=0)

    def _hold(self, slot: Slot) -> Slot:
        self._free[slot.builder] -= 1
        if slot.work.record is None:
            self._warm[slot.builder] |= _parts(slot.work)
        return slot

    def _give_back(self, builder: str | None) -> None:
        with self._changed:
            if builder in self._free:
                self._free[builder] += 1
            self._changed.notify_all()


def _parts(work: BuildWork) -> frozenset[str]:
    """Return the parts of a target that a builder may cache: itself, its wheels, its bases."""
    target, lock = work.target, work.lock
    wheels = target.lock if lock is None else lock.digest
    return frozenset((target.id, wheels, target.base.build, target.base.final))
