"""`lock`, as a function, and what it says about base images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING

from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    BuildmatrixError,
    UsageError,
    most_severe,
)
from buildmatrix.base.text import count
from buildmatrix.commands.options import SelectionOptions, option
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.matrix.model import Spec, Target

if TYPE_CHECKING:
    from buildmatrix.commands.workspace import Log


@dataclass(frozen=True, slots=True)
class LockStates:
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
