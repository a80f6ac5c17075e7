"""`build --preflight`: the ladder, climbed with an image as soon as it is built."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from buildmatrix.commands.preflight.run import preflight
from buildmatrix.commands.preflight.subject import Subject
from buildmatrix.engines.model import Engine
from buildmatrix.progress import Progress
from buildmatrix.reports.preflight.model import RungOutcome
from buildmatrix.rules.model import GateState, Rung
from buildmatrix.spec.model import Spec, Target
from buildmatrix.state import journal
from buildmatrix.state.folder import TargetFiles

#: Checks that did not pass which the message of a build names.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Climbed:
    """How far an image got on this machine."""

    state: GateState
    error: str | None = None
    #: Rungs that nobody ran, with the node classes that have to: `rung device (h100)`.
    not_run: tuple[str, ...] = ()


def digest_of(config: str, level: Rung) -> str:
    """What the journal keeps of an image that has passed every rung up to `level`."""
    return journal.key({"image": config, "preflight": level})


def climb(
    target: Target,
    spec: Spec,
    files: TargetFiles,
    reference: str,
    level: Rung,
    engine: Engine,
    progress: Progress,
    today: date,
) -> Climbed:
    """Climb up to `level`, without the rung `static`: that is the gate `scan`."""
    image = engine.image(reference)
    if image is None:
        return Climbed("undecided", f"{reference} is not on this machine, so it cannot be run")
    subject = Subject(target, spec, engine, reference, image, files)
    (climbed,) = preflight([subject], level, None, progress, today, scanned=True).targets
    failed = next((rung for rung in climbed.rungs if rung.state in ("failed", "undecided")), None)
    left = tuple(_left(rung) for rung in climbed.rungs if rung.state == "not-run")
    if failed is not None:
        return Climbed("failed" if failed.state == "failed" else "undecided", _said(failed), left)
    passed = any(rung.state == "passed" for rung in climbed.rungs)
    return Climbed("passed" if passed else "not-run", None, left)


def _left(rung: RungOutcome) -> str:
    return f"rung {rung.rung}" + (f" ({', '.join(rung.run_on)})" if rung.run_on else "")


def _said(rung: RungOutcome) -> str:
    open_checks = [check for check in rung.checks if check.state == rung.state]
    lines = [f"\n  | {check.subject}: {check.message}" for check in open_checks[:_SHOWN]]
    more = len(open_checks) - _SHOWN
    if more > 0:
        lines.append(f"\n  | and {more} more; `buildmatrix preflight` shows them")
    return f"the rung `{rung.rung}` {rung.state}" + "".join(lines)
