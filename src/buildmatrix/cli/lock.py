"""`buildmatrix lock`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.bases import report_bases
from buildmatrix.cli.console import complain, say
from buildmatrix.cli.options import (
    CommandSettings,
    option,
    selection_options,
)
from buildmatrix.cli.progress import progress
from buildmatrix.cli.sharding import Sharding, load_shard, shard_options
from buildmatrix.errors import BuildmatrixError, UsageError, most_severe

if TYPE_CHECKING:
    from buildmatrix.spec.model import Spec, Target


@click.command("lock", short_help="Resolve one pylock.<id>.toml per target.")
@selection_options
@shard_options
@option("--check", is_flag=True, help="Only list locks that are older than their inputs (exit 1).")
@option(
    "--upgrade",
    "upgrades",
    is_flag=False,
    flag_value="*",
    multiple=True,
    metavar="[=NAME]",
    help="Take the newest of everything, or of NAME only.",
)
@option("--jobs", type=click.IntRange(1), default=4, show_default=True, help="Targets at a time.")
@option("--offline", is_flag=True, help="Use caches only.")
@click.pass_obj
def command(
    settings: CommandSettings,
    globs: tuple[str, ...],
    subset: str | None,
    sharding: Sharding | None,
    check: bool,
    upgrades: tuple[str, ...],
    jobs: int,
    offline: bool,
) -> int:
    """Resolve every target for its own platform, Python and index, with hashes (PEP 751).

    Locks that are current are left alone, and then no network is used. A lock that the project
    has is not resolved: the files of the target are taken from it.
    """
    from buildmatrix.locks.model import Lock
    from buildmatrix.locks.resolve import lock_targets
    from buildmatrix.locks.status import changes, leftovers, staleness, versions_in, versions_of

    spec, part = load_shard(settings, globs, subset, sharding)
    targets = part.targets
    reasons = {target.id: staleness(spec, target) for target in targets}
    for line in leftovers(spec):
        complain(line)
    if check:
        for id, reason in reasons.items():
            if reason:
                say(f"{id}: {reason}")
        return 1 if any(reasons.values()) else 0
    if not any(reasons.values()):
        _check_locked(spec, targets, [name for name in upgrades if name != "*"])
    for line in _not_upgraded(targets) if upgrades else ():
        complain(line)
    stale = [t for t in targets if reasons[t.id] or upgrades or t.committed_lock]
    before = {target.id: versions_in(spec.root / target.lock) for target in stale}
    with progress(settings) as display:
        results = lock_targets(
            spec,
            stale,
            upgrade=True if "*" in upgrades else upgrades,
            offline=offline,
            progress=display,
            jobs=jobs,
        )
    failures = {id: r for id, r in results.items() if isinstance(r, BuildmatrixError)}
    failed_by_message: dict[str, list[str]] = {}
    for id, failure in failures.items():
        failed_by_message.setdefault(failure.message.removeprefix(f"{id}: "), []).append(id)
    for message, ids in failed_by_message.items():
        complain(f"{', '.join(ids)}: {message}")
    for target in targets:
        if target.id not in failures and not settings.quiet:
            state = "locked" if target.id in results else "current"
            if target.committed_lock:
                say(f"{target.id}: taken from {target.lock_label}")
            else:
                say(f"{target.id}: {state} {target.lock}")
    if not settings.quiet:
        after = {id: versions_of(lock) for id, lock in results.items() if isinstance(lock, Lock)}
        for line in changes(before, after):
            say(line)
    bases = report_bases(spec, targets, quiet=settings.quiet)
    return most_severe([bases, *(failure.exit_code for failure in failures.values())])


def _not_upgraded(targets: Sequence[Target]) -> list[str]:
    """One sentence per lock of the project: these are upgraded by their own tools."""
    from buildmatrix.locks.taken import upgrade_command

    commands = {t.committed_lock: upgrade_command(t) for t in targets if t.committed_lock}
    return [
        f"{lock} is not upgraded here: "
        + (f"run `{command}`" if command else "upgrade it with the tool that made it")
        for lock, command in sorted(commands.items())
    ]


def _check_locked(spec: Spec, targets: Sequence[Target], names: Sequence[str]) -> None:
    """Raise `UsageError` for names that no lock of `targets` has: they are spelled wrong."""
    from packaging.utils import canonicalize_name

    from buildmatrix.locks.pylock import read_lock

    if not names:
        return
    ours = [target for target in targets if not target.committed_lock]
    if not ours:
        return
    locks = [read_lock(spec.root / target.lock) for target in ours]
    locked = {package.name for lock in locks for package in lock.packages}
    for name in names:
        if canonicalize_name(name) not in locked:
            near = get_close_matches(canonicalize_name(name), locked, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--upgrade={name}: no lock of these targets has it{hint}")
