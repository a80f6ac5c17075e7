"""Checks that run in an image: smoke commands, and rungs of `preflight`."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from buildmatrix import __version__
from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import listing
from buildmatrix.engines.model import Engine
from buildmatrix.engines.process import shorten
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.model import ClimbedRung, GateState
from buildmatrix.locks.selection import PLATFORMS
from buildmatrix.matrix.model import RUNGS, CheckWaiver, Rung, Smoke, Spec, Target
from buildmatrix.preflight import machine
from buildmatrix.preflight.subject import Subject, find_nodes
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import TargetFiles

if TYPE_CHECKING:
    from buildmatrix.reports.preflight import RungOutcome

# Smoke commands.
#
# Level `import` runs anywhere. The levels `device` and `batch` need a machine of a node class that
# has the device, unless the backend has none (cpu). Commands that did not run never count as
# passed; one that could run anywhere and did not leaves the gate undecided.


#: Lines of a failed command's output in the message.
SHOWN = 8


class SmokeOutcome(Struct, frozen=True):
    """Outcome of the smoke gate of one target."""

    state: GateState
    #: Digests of the commands that this image has passed, now or earlier.
    passed: tuple[str, ...] = ()
    #: Failure, if any.
    error: str | None = None
    #: Why commands did not run that need no device.
    why_not: BuildmatrixError | None = None


def runs_here(target: Target, has_device: bool) -> tuple[Smoke, ...]:
    """The smoke commands of a target that need no device; `has_device` is about its backend."""
    return tuple(smoke for smoke in target.smoke if smoke.level == "import" or not has_device)


def not_run_here(target: Target, has_device: bool) -> tuple[Smoke, ...]:
    """The smoke commands of a target that only a machine with the device can run."""
    return tuple(smoke for smoke in target.smoke if smoke.level != "import" and has_device)


def run(
    target: Target,
    has_device: bool,
    reference: str,
    config: str,
    already_passed: Iterable[str],
    engine: Engine,
    progress: Progress,
) -> SmokeOutcome:
    """Run the commands that can run here and have not `already_passed` in this image.

    `config` identifies the image. Stops at the first command that fails.
    """
    digests = {
        smoke: state_folder.make_key({"image": config, "command": smoke.command})
        for smoke in runs_here(target, has_device)
    }
    if not digests:
        return SmokeOutcome("not-run")
    already_passed = set(already_passed)
    if already_passed.issuperset(digests.values()):
        return SmokeOutcome("passed", tuple(digests.values()))
    why_not = engine.cannot_run(reference)
    if why_not is not None:
        open_ = [smoke for smoke, digest in digests.items() if digest not in already_passed]
        held = tuple(digest for digest in digests.values() if digest in already_passed)
        return SmokeOutcome("undecided", held, why_not=did_not_run(open_, why_not))
    progress.step(target.id, "smoke: preparing the image")
    passed: list[str] = []
    with engine.runner(reference) as run_here:
        for smoke, digest in digests.items():
            if digest not in already_passed:
                progress.step(target.id, f"smoke {smoke.name}")
                result = run_here(smoke.command, smoke.timeout_s)
                if result.timed_out or result.exit_code != 0:
                    outcome = (
                        f"did not end within {smoke.timeout_s:g} s"
                        if result.timed_out
                        else f"failed with exit code {result.exit_code}"
                    )
                    lines = [line for line in result.output.splitlines() if line.strip()][-SHOWN:]
                    message = f"smoke command {smoke.name!r} ({smoke.position}) {outcome}"
                    message += "".join(f"\n  | {shorten(line, 300)}" for line in lines)
                    return SmokeOutcome("failed", tuple(passed), message)
            passed.append(digest)
    return SmokeOutcome("passed", tuple(passed))


def did_not_run(commands: Sequence[Smoke], why: BuildmatrixError) -> BuildmatrixError:
    """Name the commands that had to run and did not; the cause keeps its exit code."""
    noun = "smoke command" if len(commands) == 1 else "smoke commands"
    names = listing(smoke.name for smoke in commands)
    return why.saying(f"{noun} {names} did not run: {why.message}")


# Rungs of `preflight`, run as soon as an image is built.
#
# Without `--level` a build runs the rungs that take seconds: `import` everywhere, and `device`
# if the backend's devices are here, or are the processor. Later rungs need the whole machine to
# mean anything (`compute` measures rates, `batch` and `cold-start` times).


#: Checks that did not pass which the message of a build names.
_SHOWN = 5


class Ascent(Struct, frozen=True):
    """Rungs that an image is to climb on this machine."""

    level: Rung
    #: Why it does not climb at all, where that is so.
    why_not: UndecidedError | None = None
    #: Nodes of the backend's devices here, for which an answer holds.
    nodes: tuple[str, ...] = ()

    def digest(self, config: str, waivers: Sequence[CheckWaiver] = ()) -> str:
        """Return the key of an image's answer in the journal; `waivers` are valid on that day."""
        accepted = [(waiver.rung, waiver.check) for waiver in waivers]
        climb = {"preflight": self.level, "nodes": self.nodes, "tool": __version__}
        return state_folder.make_key({"image": config, "accepted": accepted, **climb})


class Climbed(Struct, frozen=True):
    """Rungs that an image climbed on this machine."""

    state: GateState
    error: str | None
    rungs: tuple[ClimbedRung, ...]


def ascent(target: Target, wanted: Rung | Literal["auto"], judge: Judge) -> Ascent:
    """Return the rungs that an image climbs, if `wanted` was requested."""
    nodes = find_nodes(machine.MachineFiles(), judge.catalogue, target.backend)
    if wanted != "auto":
        return Ascent(wanted, nodes=nodes or ())
    here = platform.machine()
    if PLATFORMS.get(target.platform) != here:
        # An emulator would import for minutes, and shows nothing of the processor.
        why_not = UndecidedError(f"the image is for {target.platform}, and this machine is {here}")
        return Ascent("import", why_not)
    # If a backend's nodes have no name, only frameworks tell whether it is here.
    return Ascent("import" if nodes == () else "device", nodes=nodes or ())


def climb(
    target: Target,
    spec: Spec,
    files: TargetFiles,
    reference: str,
    level: Rung,
    engine: Engine,
    progress: Progress,
    today: date,
    *,
    is_asked_for: bool,
) -> Climbed:
    """Climb up to `level`, without the rung `static`: that is the gate `scan`.

    `is_asked_for`: what this machine cannot run of it is undecided, and not left to others.
    """
    from buildmatrix.preflight.run import preflight

    image = engine.image(reference)
    if image is None:
        why = f"{reference} is not on this machine, so it cannot be run"
        return Climbed("undecided", why, skip_rungs(target, why))
    subject = Subject(target, spec, engine, reference, image, files)
    (climbed,) = preflight(
        [subject], level, None, progress, today, scanned=True, is_asked_for=is_asked_for
    ).targets
    failed = next((rung for rung in climbed.rungs if rung.state in ("failed", "undecided")), None)
    rungs = place_rungs(
        target,
        [
            *(ClimbedRung(rung.rung, rung.state, rung.why) for rung in climbed.rungs),
            *(ClimbedRung(rung, "not-run") for rung in RUNGS[RUNGS.index(level) + 1 :]),
        ],
    )
    if failed is not None:
        return Climbed(failed.state, _describe_rung(failed), rungs)
    passed = any(rung.state == "passed" for rung in rungs)
    return Climbed("passed" if passed else "not-run", None, rungs)


def skip_rungs(target: Target, why: str) -> tuple[ClimbedRung, ...]:
    """The ladder of an image that did not climb at all."""
    return place_rungs(target, [ClimbedRung(rung, "not-run", why) for rung in RUNGS[1:]])


def place_rungs(target: Target, rungs: Sequence[ClimbedRung]) -> tuple[ClimbedRung, ...]:
    """The same rungs with the node classes that the target has now."""
    classes = tuple(node.name for node in target.node_classes)
    return tuple(replace(rung, run_on=classes if rung.state == "not-run" else ()) for rung in rungs)


def _describe_rung(rung: RungOutcome) -> str:
    open_checks = [check for check in rung.checks if check.state == rung.state]
    lines = [f"\n  | {check.subject}: {check.message}" for check in open_checks[:_SHOWN]]
    more = len(open_checks) - _SHOWN
    if more > 0:
        lines.append(f"\n  | and {more} more; `buildmatrix preflight` shows them")
    said = "failed" if rung.state == "failed" else "is undecided"
    accept = ", `[[waive-check]]` accepts what may fail" if rung.state == "failed" else ""
    why = f": {rung.why}" if rung.why and not open_checks else ""
    return (
        f"the rung `{rung.rung}` {said} (`--level` chooses how far a build climbs{accept}){why}"
        + "".join(lines)
    )
