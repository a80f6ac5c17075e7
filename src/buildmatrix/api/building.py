"""`build`, as a function: its engine, its signer, and where the images are."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    BuildmatrixError,
    UsageError,
    most_severe,
)
from buildmatrix.base.text import count
from buildmatrix.commands.options import BuildOptions, SelectionOptions, option
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.engines import OCI, engine_for_mirror, is_saved
from buildmatrix.matrix.model import Spec, Target
from buildmatrix.reports.formats import RUN

if TYPE_CHECKING:
    from buildmatrix.commands.build import Result
    from buildmatrix.commands.workspace import Log
    from buildmatrix.engines.model import Engine, Surroundings
    from buildmatrix.judge.model import TargetResult
    from buildmatrix.matrix.model import Target
    from buildmatrix.reports.run import Report
    from buildmatrix.signing.attached import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult(CommandResult["Report"]):
    """Result of `build`.

    Attributes:
        error: why images that are good were not published, or that the user stopped the run.
        engine: the engine that has the images.
    """

    error: str | None
    engine: Engine


def build(options: BuildOptions, ids: Collection[str] | None = None) -> BuildResult:
    """Lock, judge, build, scan and smoke-test every selected target; push when all are green.

    A target that fails costs no other. Raises a `BuildmatrixError` where nothing can be built.
    """
    from buildmatrix.api import judging
    from buildmatrix.commands.build import build
    from buildmatrix.commands.build_work import Options
    from buildmatrix.matrix.matrix import select

    if options.push and options.stage:
        raise UsageError("--push sets tags, and --stage leaves them to `promote`; give one of them")
    around = make_surroundings(options)
    here = replace(options.workspace, engine=around.engine)
    signer = _signer(options) if options.attest else None
    spec = here.load()
    if ids is None:
        ids = {target.id for target in select(spec, options.select, options.subset)}
    spec = judging.replace_policy(spec, judging.policy_of(options.policy, here))
    targets = tuple(target for target in spec.targets if target.id in ids)
    if options.save is not None:
        check_save(options.save, targets)
    more = judging.more_waivers(options.waivers, [target.id for target in spec.targets])
    spec = replace(spec, waivers=(*spec.waivers, *more))
    builders = tuple(options.builders)
    builder = here.builder(buildx=builders[0] if builders else None)
    level = options.preflight
    is_skipped = level == "none" or (level == "auto" and not options.smoke)
    with closing(builder), here.progress() as display:
        made: dict[str, Any] = {
            "workspace": here,
            "surroundings": around,
            "builders": builders or (None,),
            "rebuild": options.rebuild or not here.cache,
            "preflight": None if is_skipped else level,
            "signer": signer,
            "asking": here.advisories(options.vulnerabilities),
            "known_findings": judging.known_findings(options.baseline),
        }
        result = build(spec, targets, Options(**vars(options) | made), builder, display)
    if options.save is not None:
        save_images(options.save, result, builder, here.log)
    report = judging.add_gone(result.report, options.baseline)
    return BuildResult(report, result.exit_code, RUN, spec.root, error=result.error, engine=builder)


def make_surroundings(options: BuildOptions) -> Surroundings:
    """Check and combine the options of the engine. Raises `UsageError`."""
    from buildmatrix.engines.model import Surroundings

    builders, mirror = options.builders, options.mirror
    for name in builders:
        if builders.count(name) > 1:
            raise UsageError(
                f"--builder {name} is given twice; --jobs says how many targets it builds at a time"
            )
    engine = engine_for_mirror(options.workspace.engine, mirror)
    is_prefix = mirror.endswith("/") and not any(map(str.isspace, mirror))
    if mirror and not (is_prefix or is_saved(mirror)):
        written = "".join(mirror.split()).rstrip("/") or "mirror.example.com"
        raise UsageError(
            f"--mirror {mirror!r} is no prefix of image names; write it without spaces and "
            f"with / at its end: --mirror {written}/"
        )
    files = ("ca", options.ca), ("netrc", options.netrc)
    secrets = {name: path for name, path in files if path is not None}
    for name, path in secrets.items():
        if not path.is_file():
            raise UsageError(f"--{name} {path}: there is no such file")
    return Surroundings(
        engine=engine,
        mirror=mirror,
        network="" if options.network == "default" else options.network,
        secrets={name: path.absolute() for name, path in secrets.items()},
        builder_patience=options.builder_timeout,
    )


def _signer(options: BuildOptions) -> Signer:
    """Return the signer of verdicts. Raises `UsageError`, `ComponentError`, `UndecidedError`."""
    from buildmatrix.signing.documents import PASSWORD, read_private
    from buildmatrix.signing.keyless import make_keyless_signer

    if not (options.push or options.stage):
        raise UsageError("--attest signs what is published; add --push or --stage")
    if options.sign_key is None:
        return make_keyless_signer(options.trust_root)
    if options.trust_root is not None:
        raise UsageError("--sign-key signs with a key, and --trust-root without one; give one")
    return read_private(options.sign_key, os.environ.get(PASSWORD))


# Where the images of a build are, and what to do with them


def describe_images(
    report: Report, engine: Engine, folder: str, save: str | None, promoted: Path | None
) -> list[str]:
    """Say where the green images are, and how to run or publish them; nothing without any.

    `folder` has the images of the engine `oci`, `save` the archives, if any, and `promoted` is the
    report of images that were staged.
    """
    green = [target for target in report.targets if _is_green(target) and target.image]
    if not green:
        return []
    first = green[0]
    which = first.image if len(green) == 1 else count(len(green), "image")
    if promoted is not None:
        staged = count(len(green), "image")
        return [f"{staged} staged, without tags", f"publish: buildmatrix promote {promoted}"]
    if first.push == "passed":
        return [f"{which} published", f"run: docker run --rm {first.image}"]
    load = f"docker load -i {(save or '').replace(_ID, first.id)}"
    if save is not None:
        lines = [f"{which} saved", f"run: {load}, then docker run --rm {first.image}"]
    elif engine.name == OCI:
        name = "image.tar" if len(report.targets) == 1 else f"'{_ID}.tar'"
        lines = [
            f"{which} in {folder} (an OCI layout)",
            f"run: the same command with --save {name}, then docker load -i FILE",
        ]
    elif _has_image(engine, first.image):
        lines = [f"{which} in Docker", f"run: docker run --rm {first.image}"]
    else:
        lines = [f"{which} in the cache of the builder"]
    if len(green) == len(report.targets):
        lines.append("publish: the same command with --push")
    return lines


def _has_image(engine: Engine, name: str | None) -> bool:
    try:
        return name is not None and engine.image(name) is not None
    except BuildmatrixError:
        return False


def _is_green(target: TargetResult) -> bool:
    states = {*target.gates.values(), target.push}
    is_built = target.gates.get("build") == "passed"
    return is_built and target.error is None and not states & {"failed", "undecided"}


# `build --save`: archives for `docker load`


#: Placeholder of the target's identifier in a file name.
_ID = "{id}"


def check_save(file: str, targets: Sequence[Target]) -> None:
    """Raises `UsageError` where several images would go into one file."""
    if len(targets) > 1 and _ID not in file:
        raise UsageError(
            f"--save {file}: {len(targets)} targets are selected, and an archive holds one image; "
            f"write {_ID} into the name, or select one target"
        )
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"--save {file}: there is no folder {Path(file).parent}")


def save_images(file: str, result: Result, engine: Engine, log: Log) -> None:
    """Write the archives of the targets that are green. Raises `BuildError` when a disk is full."""
    from buildmatrix.engines.process import writing
    from buildmatrix.facts.inventory.archive import open_atomically

    for target in result.report.targets:
        if not _is_green(target):
            log("warning", f"{target.id}: not saved, as it is not green")
            continue
        path = Path(file.replace(_ID, target.id))
        assert target.image is not None
        with (
            writing(path.parent),
            open_atomically(path) as archive,
            engine.export(target.image) as chunks,
        ):
            for chunk in chunks:
                archive.write(chunk)
        log("info", f"{target.id}: saved as {path}")


class LockStates(Struct, frozen=True):
    """State of each lock."""

    #: Target -> `locked FILE`, `current FILE`, `taken from FILE`; with `check`, why it is stale.
    states: Mapping[str, str]
    #: Changes of versions, one line each.
    changes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class LockOptions(SelectionOptions):
    """Options of `lock`."""

    check: bool = option(False, "Only list locks that are older than their inputs (exit 1).")
    upgrade: Sequence[str] = option(
        (),
        "Take the newest of everything, or of NAME only.",
        is_flag=False,
        flag_value="*",
        metavar="[=NAME]",
    )
    jobs: int = option(4, "Targets at a time.", least=1, show_default=True)


def lock(options: LockOptions, ids: Collection[str] | None = None) -> CommandResult[LockStates]:
    """Resolve every target for its own platform, Python and index, with hashes (PEP 751).

    Locks that are current are left alone. Targets that fail are logged, and missing in the result.
    Raises a `BuildmatrixError` where the specification is wrong, or no target is selected.
    """
    from buildmatrix.locks.model import Lock
    from buildmatrix.locks.resolve import lock_targets
    from buildmatrix.locks.status import changes, leftovers, staleness, versions_in, versions_of
    from buildmatrix.locks.taken import upgrade_command
    from buildmatrix.matrix.matrix import select

    log, upgrades = options.workspace.log, options.upgrade
    spec = options.workspace.load()
    targets = select(spec, options.select, options.subset)
    if ids is not None:
        targets = tuple(target for target in targets if target.id in ids)
    reasons = {target.id: staleness(spec, target) for target in targets}
    for line in leftovers(spec):
        log("warning", line)
    if options.check:
        stale_locks = {id: reason for id, reason in reasons.items() if reason}
        number, changed = count(len(targets), "lock"), len(stale_locks)
        text = f"{changed} of {number} not current; run `buildmatrix lock`"
        log("info", text if changed else f"{number} checked, all current")
        code = EXIT_FINDINGS if changed else EXIT_OK
        return CommandResult(LockStates(stale_locks), code, ())
    if not any(reasons.values()):
        _check_locked(spec, targets, [name for name in upgrades if name != "*"])
    # Locks of the project are upgraded by their own tools.
    others = {t.committed_lock: upgrade_command(t) for t in targets if t.committed_lock}
    for committed, command in sorted(others.items()) if upgrades else ():
        how = f"run `{command}`" if command else "upgrade it with the tool that made it"
        log("warning", f"{committed} is not upgraded here: {how}")
    stale = [t for t in targets if reasons[t.id] or upgrades or t.committed_lock]
    before = {target.id: versions_in(spec.root / target.lock) for target in stale}
    with options.workspace.progress() as display:
        results = lock_targets(
            spec,
            stale,
            upgrade=True if "*" in upgrades else upgrades,
            offline=options.workspace.offline,
            progress=display,
            jobs=options.jobs,
        )
    failures = {id: r for id, r in results.items() if isinstance(r, BuildmatrixError)}
    failed_by_message: dict[str, list[str]] = {}
    for id, failure in failures.items():
        failed_by_message.setdefault(failure.message.removeprefix(f"{id}: "), []).append(id)
    for message, failed in failed_by_message.items():
        log("warning", f"{', '.join(failed)}: {message}")
    states = {
        target.id: f"taken from {target.lock_label}"
        if target.committed_lock
        else f"{'locked' if target.id in results else 'current'} {target.lock}"
        for target in targets
        if target.id not in failures
    }
    after = {id: versions_of(lock) for id, lock in results.items() if isinstance(lock, Lock)}
    code = most_severe(
        [report_bases(spec, targets, log), *(failure.exit_code for failure in failures.values())]
    )
    return CommandResult(LockStates(states, tuple(changes(before, after))), code, ())


def _check_locked(spec: Spec, targets: Sequence[Target], names: Sequence[str]) -> None:
    """Raise `UsageError` for names that no lock of `targets` has: they are spelled wrong."""
    from packaging.utils import canonicalize_name

    from buildmatrix.locks.pylock import read_lock

    ours = [target for target in targets if not target.committed_lock]
    if not names or not ours:
        return
    locks = [read_lock(spec.root / target.lock) for target in ours]
    locked = {package.name for lock in locks for package in lock.packages}
    for name in names:
        if canonicalize_name(name) not in locked:
            near = get_close_matches(canonicalize_name(name), locked, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--upgrade={name}: no lock of these targets has it{hint}")


# Remarks on base images, as `lock` and `generate` write no report


def report_bases(spec: Spec, targets: Sequence[Target], log: Log) -> int:
    """Log the bases that can be another image tomorrow, each place once; return the exit code.

    Notes are for reports. Errors are logged as warnings, all else as information.
    """
    from buildmatrix.judge.acceptance import fails
    from buildmatrix.judge.judging import Judge

    judge = Judge(spec, "error", date.today())
    lines: dict[str, bool] = {}
    for target in targets:
        for finding in judge.bases(target):
            if finding.severity == "note" or finding.waived is not None:
                continue
            place = finding.chain[0]
            line = f"{place}: {finding.severity} {finding.rule}: {finding.message}"
            lines[line] = fails(finding)
    for line, failed in lines.items():
        log("warning" if failed else "info", line)
    return EXIT_FINDINGS if any(lines.values()) else EXIT_OK
