"""`preflight` and `doctor`, as functions: images on this machine, and the machine itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    ComponentError,
    SpecError,
    UndecidedError,
    UsageError,
    most_severe,
)
from buildmatrix.commands.options import CommandOptions, argument, option
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.engines import DOCKER, OCI
from buildmatrix.matrix.model import RUNGS, Rung
from buildmatrix.reports.formats import DOCTOR, PREFLIGHT

if TYPE_CHECKING:
    from buildmatrix.matrix.model import Spec
    from buildmatrix.reports.doctor import Diagnosis, DoctorLine, State
    from buildmatrix.reports.preflight import Preflight


@dataclass(frozen=True, kw_only=True)
class EarlierOptions:
    """Earlier preflights to compare with."""

    baseline: Path | None = option(
        None,
        "Accepted preflight (--accept) to compare with; values 20 % worse fail.",
        variable="BUILDMATRIX_PREFLIGHT_BASELINE",
    )
    reference: Path | None = option(
        None, "Preflight on a CPU (--format json) with the expected results of commands."
    )
    strict: bool = option(False, "Treat rungs that did not run as undecided.")


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(CommandOptions, EarlierOptions):
    """Options of `preflight`."""

    name: str = field(
        kw_only=False,
        metadata=argument(
            "a target, a pattern of targets, an image, or an environment (`env:FOLDER`)",
            metavar="TARGET|IMAGE|env:FOLDER",
            completes="targets",
        ),
    )
    level: Rung = option(RUNGS[-1], "Run rungs up to and including this one.", show_default=True)
    node_class: str | None = option(None, "Node class of this machine.", metavar="NAME")
    backend: str | None = option(
        None, "Backend, if the image has no backend label.", metavar="NAME"
    )
    repeat: int = option(
        5,
        "Runs of each timed command; p95 needs 20, p99 100.",
        least=1,
        most=1000,
        show_default=True,
    )


def preflight(options: PreflightOptions, is_asked_for: bool = False) -> CommandResult[Preflight]:
    """Import, compute and warm up in images on this machine, up a ladder of rungs.

    What this machine cannot run is in the result, with the node classes that have to. Raises a
    `BuildmatrixError` where there is no image, or the options contradict the specification.
    """
    from buildmatrix.preflight.environment import PREFIXES, find_environment
    from buildmatrix.preflight.run import exit_code, preflight
    from buildmatrix.preflight.subject import find_image, select_targets

    here, name, node_class = options.workspace, options.name, options.node_class
    spec = here.declared()()
    engines = cache(here.image_engine)
    prefix, _, folder = name.partition(":")
    if spec is not None and is_target(name):
        subjects = select_targets(name, spec, engines, here.engine)
    elif folder and prefix in PREFIXES:
        subjects = (find_environment(name, Path(folder), options.backend, spec),)
    else:
        subjects = (find_image(name, options.backend, spec, engines(here.engine)),)
    names = {node.name for subject in subjects for node in subject.node_classes}
    if node_class is not None and node_class not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise UsageError(f"--node-class {node_class}: the node classes of {name} are {listed}")
    with here.progress() as display:
        result = preflight(
            subjects,
            options.level,
            node_class,
            display,
            date.today(),
            is_asked_for=is_asked_for,
            repeat=options.repeat,
            baseline=options.baseline,
            reference=options.reference,
        )
    return CommandResult(result, exit_code(result, options.strict), PREFLIGHT)


def is_target(name: str) -> bool:
    """Return whether a name is that of targets, where there is a specification."""
    return not (":" in name or "/" in name)


@dataclass(frozen=True, kw_only=True)
class CollectOptions(CommandOptions, EarlierOptions):
    """Options of `preflight collect`."""

    files: Sequence[str] = field(
        default=(),
        kw_only=False,
        metadata=argument(
            "logs of pods, and folders of them; `-` is standard input, as is nothing",
            nargs=-1,
            metavar="FILE|FOLDER|-...",
            completes="files",
        ),
    )
    image: str | None = option(None, "Refuse results of any other image.", metavar="NAME@DIGEST")


def collect(options: CollectOptions) -> CommandResult[Preflight]:
    """Read the logs of pods of `preflight --kubernetes`, and merge them to one report.

    Raises a `BuildmatrixError` for pods of another image.
    """
    from buildmatrix.net.registry_mirrors import Reference
    from buildmatrix.preflight.cluster import collect, find_subject
    from buildmatrix.preflight.protocol import read_logs
    from buildmatrix.preflight.run import exit_code

    here = options.workspace
    spec = here.declared()()
    digest = Reference.parse(options.image).digest if options.image else None
    result = collect(
        read_logs(options.files or ("-",)),
        partial(find_subject, spec, here.image_engine(OCI)),
        digest,
        date.today(),
        baseline=options.baseline,
        reference=options.reference,
    )
    return CommandResult(result, exit_code(result, options.strict), PREFLIGHT)


# `doctor`


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommandOptions):
    """Options of `doctor`."""

    builder: str | None = option(
        None, "A buildx builder to check instead of the daemon's.", metavar="NAME"
    )
    process: int | None = option(
        None, "Show only the vendor libraries mapped by a process.", least=1, metavar="PID"
    )
    interval: float = option(
        1.0,
        "Time between two reads of counters; 0 skips them.",
        least=0,
        most=60,
        show_default=True,
        metavar="SECONDS",
    )
    strict: bool = option(False, "Fail if a check of the machine is `partly` (1) or `unknown` (3).")


def doctor(
    options: DoctorOptions, show: Callable[[DoctorLine], None] = lambda _: None
) -> CommandResult[Diagnosis]:
    """Show what this machine can do: engine, resolver, devices; `show` gets each line at once.

    No program of a vendor is run. A device that is not here is no failure.
    """
    lines: list[DoctorLine] = []

    def add(*known: DoctorLine) -> None:
        for line in known:
            lines.append(line)
            show(line)

    if options.process is None:
        diagnosis = _check_machine(options, add)
    else:
        diagnosis = _check_process(options, options.process, add)
    code = most_severe([EXIT_OK, *(_code(line, options.strict) for line in lines)])
    return CommandResult(replace(diagnosis, checks=tuple(lines)), code, DOCTOR)


#: What a state says about the runs to come. Devices and disks decide nothing: no command needs a
#: device, and what is little for one project is plenty for another.
_CODES: dict[State, int] = {
    "missing": ComponentError.exit_code,
    "wrong": SpecError.exit_code,
    "unknown": UndecidedError.exit_code,
}


#: The same for the checks of the node and a process, with --strict.
_STRICT: dict[State, int] = {
    "partly": EXIT_FINDINGS,
    "unknown": UndecidedError.exit_code,
}


def _check_machine(options: DoctorOptions, add: Callable[..., None]) -> Diagnosis:
    """Add each thing that is checked, as soon as it is known; return the facts of the machine."""
    from buildmatrix.commands import doctor
    from buildmatrix.commands.doctor_node import format_checks as node_lines
    from buildmatrix.net.machine_indexes import default_indexes
    from buildmatrix.preflight.machine import MachineFiles
    from buildmatrix.reports.doctor import DoctorLine

    here, interval = options.workspace, options.interval
    lines, facilities = doctor.check_engines(
        here.builder(DOCKER), here.builder(OCI), options.builder or None
    )
    add(*lines)
    add(doctor.check_resolver())

    line, catalogue = doctor.check_catalogue(options.workspace.data_files)
    add(line)

    machine = MachineFiles()
    node = doctor.find_node(machine, catalogue)
    before = node.take_sample(time.monotonic()) if interval else None

    def specification() -> Spec | None:
        return here.load() if here.specification.exists() else None

    line, spec = doctor.check_specification(specification)
    add(line)

    places = {"locks, generated files, state": here.specification.absolute().parent}
    if (folder := here.user_cache().folder) is not None:
        places["cache"] = folder
    if facilities is not None and facilities.folder is not None:
        places["images"] = facilities.folder
    add(*doctor.check_disks(places))

    urls = dict.fromkeys(default_indexes())
    urls |= dict.fromkeys(
        url for target in (spec.targets if spec else ()) for url in target.index.values()
    )
    if here.offline:
        add(DoctorLine("none", "index", f"{len(urls)} not asked, as --offline was given"))
    else:
        for line in doctor.check_indexes(urls):
            add(line)

    wanted = {target.backend for target in spec.targets} if spec else set()
    add(*doctor.check_devices(machine, catalogue, wanted, facilities))
    samples = None
    if before is not None:
        time.sleep(max(0.0, before.moment + interval - time.monotonic()))
        samples = before, node.take_sample(time.monotonic())
    checks = tuple(node.run_checks(samples))
    add(*node_lines(checks))
    return doctor.make_diagnosis(machine, catalogue, facilities, (), checks=checks)


def _check_process(options: DoctorOptions, pid: int, add: Callable[..., None]) -> Diagnosis:
    """Read the libraries that one process has mapped, and nothing else."""
    from buildmatrix.commands import doctor
    from buildmatrix.preflight.machine import MachineFiles

    line, catalogue = doctor.check_catalogue(options.workspace.data_files)
    if line.state != "ok":
        add(line)
    machine = MachineFiles()
    seen = doctor.examine_process(pid, catalogue, machine)
    add(*doctor.format_process(seen))
    return doctor.make_diagnosis(machine, catalogue, None, (), process=seen)


def _code(line: DoctorLine, strict: bool) -> int:
    """Return the exit code of a line."""
    kind = line.subject.partition(" ")[0]
    if kind not in ("node", "library", "process"):
        return _CODES.get(line.state, EXIT_OK)
    if kind == "process" and line.state == "unknown":
        # Nothing else was asked for.
        return UndecidedError.exit_code
    return _STRICT.get(line.state, EXIT_OK) if strict else EXIT_OK
