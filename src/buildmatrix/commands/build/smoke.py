"""Smoke commands: what must succeed inside an image before it counts as good.

Level `import` runs anywhere. The levels `device` and `batch` need a machine of a node class that
has the device, unless the backend has none (cpu): here they are not run, and what was not run
never counts as passed. A command that could run anywhere and did not leaves the gate undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.engines.model import Engine, Run
from buildmatrix.engines.process import shorten
from buildmatrix.errors import BuildmatrixError
from buildmatrix.phrases import listing
from buildmatrix.progress import Progress
from buildmatrix.rules.model import GateState
from buildmatrix.spec.model import Smoke, Target
from buildmatrix.state import journal

#: Lines of a failed command's output in the message.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class SmokeOutcome:
    """Outcome of the smoke gate of one target."""

    state: GateState
    #: Digests of the commands that this image has passed, now or earlier.
    passed: tuple[str, ...] = ()
    #: What failed, where something did.
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
        smoke: journal.make_key({"image": config, "command": smoke.command})
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
    with engine.runner(reference) as run:
        return _run(target, digests, already_passed, run, progress)


def did_not_run(commands: Sequence[Smoke], why: BuildmatrixError) -> BuildmatrixError:
    """Name the commands that had to run and did not; the cause keeps its exit code."""
    noun = "smoke command" if len(commands) == 1 else "smoke commands"
    names = listing(smoke.name for smoke in commands)
    return why.saying(f"{noun} {names} did not run: {why.message}")


def _run(
    target: Target,
    digests: Mapping[Smoke, str],
    already_passed: Collection[str],
    run: Run,
    progress: Progress,
) -> SmokeOutcome:
    passed: list[str] = []
    for smoke, digest in digests.items():
        if digest not in already_passed:
            progress.step(target.id, f"smoke {smoke.name}")
            result = run(smoke.command, smoke.timeout_s)
            if result.timed_out or result.exit_code != 0:
                outcome = (
                    f"did not end within {smoke.timeout_s:g} s"
                    if result.timed_out
                    else f"failed with exit code {result.exit_code}"
                )
                lines = [f"\n  | {shorten(line, 300)}" for line in _tail(result.output)]
                return SmokeOutcome(
                    "failed",
                    tuple(passed),
                    f"smoke command {smoke.name!r} ({smoke.position}) {outcome}" + "".join(lines),
                )
        passed.append(digest)
    return SmokeOutcome("passed", tuple(passed))


def _tail(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.strip()][-SHOWN:]
