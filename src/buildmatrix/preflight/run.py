"""Execution of the rungs, as far as possible on this machine.

A failed or undecided rung ends the climb: later rungs would fail for the same reason, or pass for a
wrong one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from msgspec import Struct, field

from buildmatrix import __version__
from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    BuildmatrixError,
    ComponentError,
    UndecidedError,
    most_severe,
)
from buildmatrix.base.progress import Ending, Progress
from buildmatrix.base.text import count
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.engines.model import NO_DEVICES, Run, RunResult
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.judging import Judge
from buildmatrix.matrix.model import RUNGS, NodeClass, Rung, has_to_run
from buildmatrix.preflight.baseline import (
    Expectations,
    apply_waivers,
    compare_rung,
    describe_accepted,
    read_expectations,
)
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.preflight.rungs import (
    find_disagreements,
    run_collective,
    run_compute,
    run_devices,
    run_imports,
    run_memory,
    select_seen_devices,
    waits_for_driver,
)
from buildmatrix.preflight.subject import Subject, find_access
from buildmatrix.preflight.timed_rungs import NOT_FROM_WITHIN, run_batch, run_cold_start
from buildmatrix.reports.preflight import (
    Check,
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
    state_of,
)
from buildmatrix.reports.run import ReportTool
from buildmatrix.sources.state_folder import load_inventory

_CODES: dict[RungState, int] = {
    "passed": EXIT_OK,
    "not-run": EXIT_OK,
    "failed": EXIT_FINDINGS,
    "undecided": UndecidedError.exit_code,
}


class RungInputs(Struct, frozen=True):
    """Inputs of the rungs."""

    subject: Subject
    judge: Judge
    run: Run
    node_class: NodeClass | None
    progress: Progress
    #: Date that acceptances are compared with.
    today: date
    #: Repetitions of timed commands.
    repeat: int = 5
    expected: Expectations = field(default_factory=Expectations)
    #: Devices seen by the rung `device`: `torch cuda:0`.
    devices: tuple[str, ...] = ()
    #: True if all commands run in one container, whose start is not visible.
    in_pod: bool = False

    @property
    def backend(self) -> str:
        """Backend of the target."""
        return self.subject.target.backend

    @property
    def catalogue(self) -> Catalogue:
        """Vendor data, with the user's."""
        return self.judge.catalogue


#: Rungs that need no device, and get none.
_WITHOUT_DEVICES: Collection[Rung] = ("static", "import")

Runner = Callable[[RungInputs], tuple[tuple[Check, ...], str]]


def preflight(
    subjects: Sequence[Subject],
    level: Rung,
    node_class: str | None,
    progress: Progress,
    today: date,
    *,
    scanned: bool = False,
    is_asked_for: bool = False,
    repeat: int = 5,
    baseline: Path | None = None,
    reference: Path | None = None,
) -> Preflight:
    """Run the rungs up to `level` with each image.

    Rungs that this machine cannot run are `not-run`, with the node classes that must. If `level`
    itself `is_asked_for`, it is undecided, and so is an image of which this machine runs nothing.
    `scanned` leaves the rung `static` to the caller, who has just scanned the image. `baseline` and
    `reference` are files of earlier preflights with measurements and results. Raises `UsageError`
    if one of them is about something else, and `ComponentError` if something must be installed
    before an image can run.
    """
    wanted = RUNGS[int(scanned) : RUNGS.index(level) + 1]
    expected = read_expectations([(item, node_class) for item in subjects], baseline, reference)
    obstacles = []
    for subject in subjects:
        obstacle = subject.engine.cannot_run(subject.reference) if level != "static" else None
        if isinstance(obstacle, ComponentError):
            raise obstacle.saying(f"{subject.target.id}: nothing ran: {obstacle.message}")
        obstacles.append(obstacle)
    targets = []
    for subject, own, obstacle in zip(subjects, expected, obstacles, strict=True):
        node = next((node for node in subject.node_classes if node.name == node_class), None)
        judge = Judge(subject.spec, "error", today, ())
        climb = RungInputs(subject, judge, run_nothing, node, progress, today, repeat, own)
        rungs = tuple(_climb(climb, wanted, obstacle, is_asked_for))
        name, digest = subject.reference, subject.image.digest
        on = node.name if node else None
        targets.append(
            PreflightTarget(
                subject.target.id, climb.backend, rungs, name, digest, on, subject.sandbox
            )
        )
        if not scanned:
            # A build continues with the image.
            progress.done(subject.target.id, *_describe_end(rungs))
    catalogue = Judge(subjects[0].spec, "error", today, ()).catalogue_date
    return Preflight(ReportTool(version=__version__, catalogue=catalogue), tuple(targets))


def exit_code(preflight: Preflight, strict: bool = False) -> int:
    """Return 1 for failed rungs, 3 for undecided ones, and with `strict` for `not-run`."""
    states = [rung.state for target in preflight.targets for rung in target.rungs]
    codes = [_CODES[state] for state in states]
    if strict and "not-run" in states:
        codes.append(UndecidedError.exit_code)
    return most_severe(codes)


def _climb(
    climb: RungInputs, wanted: Sequence[Rung], why_not: BuildmatrixError | None, is_asked_for: bool
) -> Iterator[RungOutcome]:
    """Yield the outcomes of an image's rungs; `why_not` is why the engine cannot run it."""
    subject, id, level = climb.subject, climb.subject.target.id, wanted[-1]
    elsewhere = tuple(node.name for node in subject.node_classes)
    stopped: RungOutcome | None = None
    without = ""
    climb.progress.step(id, "preparing the image")
    if subject.without_sandbox:
        climb.progress.step(
            id, f"without a sandbox, with your files and network: {subject.without_sandbox}"
        )
    with ExitStack() as stack:
        if level != "static" and why_not is None:
            run = stack.enter_context(subject.engine.runner(subject.reference))
            climb = replace(climb, run=run)
        for rung in wanted:
            if stopped is not None:
                why = f"the rung `{stopped.rung}` {stopped.state}"
                yield RungOutcome(rung, "not-run", why=why, run_on=elsewhere)
                continue
            if rung != "static" and why_not is not None:
                stopped = RungOutcome(rung, "undecided", why=why_not.message, run_on=elsewhere)
                yield stopped
                continue
            if rung == "device":
                climb, without = _add_devices(climb, stack)
            climb.progress.step(id, f"rung {rung}")
            began = time.monotonic()
            checks, why = RUNNERS[rung](climb)
            seconds = time.monotonic() - began
            if rung == "device":
                climb = replace(climb, devices=select_seen_devices(checks))
            if climb.expected.baseline is not None:
                checks += compare_rung(rung, checks, climb.expected.baseline)
            outcome = replace(make_outcome(climb, rung, checks, why), seconds=seconds)
            if without and outcome.state != "passed" and rung not in _WITHOUT_DEVICES:
                outcome = replace(outcome, why="; ".join(filter(None, (outcome.why, without))))
            if outcome.state == "not-run":
                is_required = is_asked_for and has_to_run(rung, level)
                state: RungState = "undecided" if is_required else "not-run"
                outcome = replace(outcome, state=state, run_on=elsewhere)
            if outcome.state in ("failed", "undecided"):
                stopped = outcome
            yield outcome


def make_outcome(climb: RungInputs, rung: Rung, checks: tuple[Check, ...], why: str) -> RungOutcome:
    """Return the outcome of a rung's checks; `why` some of them were skipped, if so."""
    checks = apply_waivers(rung, checks, climb.subject.target.check_waivers, climb.today)
    state = state_of(checks)
    # Skipped parts of a rung are reported, and an incomplete rung has not passed.
    state = "not-run" if state == "passed" and why else state
    why = "; ".join(filter(None, (why, describe_accepted(checks))))
    return RungOutcome(rung, state, checks, why)


def run_nothing(command: Sequence[str], timeout_s: float) -> RunResult:
    """Replace `run` where no command is to run."""
    raise AssertionError(f"nothing runs here: {command} {timeout_s}")


def _describe_end(rungs: Sequence[RungOutcome]) -> tuple[str, Ending]:
    """Describe briefly how far an image got, and how that ended."""
    for rung in rungs:
        if rung.state in ("failed", "undecided"):
            return f"at {rung.rung}", rung.state
    last = next((rung.rung for rung in reversed(rungs) if rung.state == "passed"), None)
    return f"up to {last or 'nothing'}", "passed"


def _add_devices(climb: RungInputs, stack: ExitStack) -> tuple[RungInputs, str]:
    """Continue with the devices of this machine; also return why not, if they exist."""
    subject, cdi = climb.subject, climb.node_class.cdi if climb.node_class else ()
    try:
        facilities = subject.engine.facilities()
    except BuildmatrixError as error:
        return climb, f"the engine does not say which devices it can hand in: {error.message}"
    devices, why = find_access(MachineFiles(), climb.catalogue, climb.backend, facilities, cdi)
    if devices == NO_DEVICES:
        return climb, why
    climb.progress.step(subject.target.id, f"with {devices}")
    run = stack.enter_context(subject.engine.runner(subject.reference, devices))
    return replace(climb, run=run), ""


def _load_last_inventory(subject: Subject) -> Inventory | None:
    """Return the last local build's inventory of a target's image."""
    return None if subject.files is None else load_inventory(subject.files)


def _run_static(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
    """Judge the last build's inventory of the image by the current rules."""
    subject = climb.subject
    inventory = _load_last_inventory(subject)
    if inventory is None:
        return (), "it was not built here; `buildmatrix scan` judges any image"
    judgement = climb.judge.image(subject.target, inventory, None)
    gate = climb.judge.gate(judgement.findings)
    number = sum(finding.waived is None for finding in judgement.findings)
    state: Mapping[str, RungState] = {"passed": "passed", "failed": "failed"}
    message = f"{count(number, 'finding')}; see `buildmatrix report`"
    return (Check("scan", state.get(gate, "undecided"), message, values={"findings": number}),), ""


def _run_import(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
    """Import every module and entry point, and compare with our model of the loader."""
    checks = run_imports(climb.run, climb.catalogue, climb.backend)
    failed = [check for check in checks if check.state == "failed"]
    if failed and (inventory := _load_last_inventory(climb.subject)) is not None:
        checks += find_disagreements(failed, inventory)
    if not checks:
        return checks, "nothing that can be imported is installed"
    waiting = [check.subject for check in checks if waits_for_driver(check)]
    shown = ", ".join(waiting[:5]) + (", ..." if len(waiting) > 5 else "")
    return checks, f"these need the driver of a node: {shown}" if waiting else ""


def _run_batch(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
    """Run the user's own commands on the device."""
    commands = [smoke for smoke in climb.subject.target.smoke if smoke.level != "import"]
    checks = run_batch(commands, climb.run, climb.repeat, climb.expected.results)
    return checks, "" if checks else "no [[smoke]] command of level `device` or `batch` is for it"


def _run_cold_start(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
    """Time the start of a container to the first answer of each framework."""
    subject, backend, late = climb.subject, climb.backend, []
    if climb.judge.has_device(backend) and (inventory := _load_last_inventory(subject)) is not None:
        judgement = climb.judge.image(subject.target, inventory, None)
        late = [item.message for item in judgement.findings if item.name == "only-by-compilation"]
    checks = run_cold_start(
        climb.run, climb.repeat, backend, climb.catalogue, late, is_within=climb.in_pod
    )
    if state_of(checks) != "not-run":
        return checks, NOT_FROM_WITHIN if climb.in_pod else ""
    return checks, f"no framework here computes on a device of {backend}"


#: Functions for the rungs; each returns its checks, and why there are none.
RUNNERS: Mapping[Rung, Runner] = {
    "static": _run_static,
    "import": _run_import,
    "device": lambda on: run_devices(on.run, on.backend, on.catalogue, on.node_class),
    "compute": lambda on: run_compute(on.run, on.backend, on.catalogue, on.devices),
    "memory": lambda on: run_memory(on.run, on.backend, on.catalogue),
    "collective": lambda on: run_collective(on.run, on.backend, on.catalogue),
    "batch": _run_batch,
    "cold-start": _run_cold_start,
}
