"""State of locks: fit to their inputs, unused locks, and changes that a new lock brings."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.model import Lock
from buildmatrix.locks.pylock import read_lock, read_lock_and_record
from buildmatrix.locks.pylock_writer import difference, input_values
from buildmatrix.locks.taken import COMMANDS, trouble_with
from buildmatrix.locks.target_requirements import read_target_requirements
from buildmatrix.matrix.document import toml_string
from buildmatrix.matrix.model import LOCK_HEADER, Spec, Target

# Changes from an old lock to a new one, in words


#: Name → version.
Versions = Mapping[str, str]


def versions_of(lock: Lock) -> Versions:
    """The versions in a lock."""
    return {package.name: package.version for package in lock.packages}


def versions_in(path: Path) -> Versions | None:
    """The versions in the lock at `path`; None where there is none that can be read."""
    try:
        return versions_of(read_lock(path))
    except SpecError:
        return None


def changes(
    before: Mapping[str, Versions | None], after: Mapping[str, Versions]
) -> tuple[str, ...]:
    """One line per change, with the targets that it is for unless it is for all that were locked.

    `before` and `after` are by target. A target that had no lock has no changes.
    """
    locked_before = {id: now for id, now in after.items() if before.get(id) is not None}
    ids_of: dict[tuple[str, str], list[str]] = {}
    for id, now in locked_before.items():
        was = before[id] or {}
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                ids_of.setdefault((name, _words(name, was, now)), []).append(id)
    return tuple(
        f"  {words}" + (f"  ({', '.join(ids)})" if len(ids) < len(locked_before) else "")
        for (_, words), ids in sorted(ids_of.items())
    )


def _words(name: str, was: Versions, now: Versions) -> str:
    if name not in was:
        return f"{name} {now[name]} is new".replace("  ", " ")
    if name not in now:
        return f"{name} {was[name]} is gone".replace("  ", " ")
    return f"{name} {was[name] or 'without version'} -> {now[name] or 'without version'}"


# State of a lock: fit to its inputs, and a target that uses it


def staleness(spec: Spec, target: Target) -> str | None:
    """Why the lock of `target` does not fit its inputs, or None when it does; see `current`."""
    if target.committed_lock:
        return trouble_with(spec.root, target)
    present = current(spec, target)
    return present if isinstance(present, str) else None


def current(spec: Spec, target: Target) -> Lock | str:
    """The lock of `target` that `buildmatrix lock` resolved, or why it does not fit its inputs.

    Compares recorded inputs with present ones: needs no network. Raises `SpecError` for a
    requirement file that cannot be read; a lock that cannot be read is a reason, no error.
    """
    path = spec.root / target.lock
    if not path.exists():
        return f"there is no {target.lock} yet"
    requirements = read_target_requirements(spec.root, target)
    try:
        lock, record = read_lock_and_record(path)
    except SpecError as error:
        return str(error.problems[0].message)
    if not record.inputs:
        return f"{target.lock} does not say what it was made from"
    now = input_values(spec.root, target, requirements)
    return difference(record.inputs, now) or lock


def unused_locks(root: Path, targets: Sequence[Target]) -> tuple[str, ...]:
    """One sentence per lock of the project that `targets`, which are resolved, do not use."""
    unused: dict[str, str] = {}
    for target in targets:
        for name in COMMANDS:
            label = posixpath.join(posixpath.dirname(target.pyproject or ""), name)
            if (root / label).is_file():
                unused[label] = " in place of `requirements`" if target.requirements else ""
    return tuple(
        f"{label} is not used, and versions are resolved anew; to install those that it holds, "
        f"write `lock = {toml_string(label)}`{instead}"
        for label, instead in sorted(unused.items())
    )


def leftovers(spec: Spec) -> tuple[str, ...]:
    """One sentence per lock that `buildmatrix lock` wrote and that is of no target, or no longer.

    Only the folders of present locks are looked at. The locks of another specification may lie
    there, too: so nothing is removed.
    """
    locks = {target.lock for target in spec.targets}
    written = {
        f"{folder}/{path.name}".removeprefix("./")
        for folder in {lock.rpartition("/")[0] or "." for lock in locks}
        for path in (spec.root / folder).glob("*.toml")
        if _is_our_own(path)
    }
    return tuple(
        f"{name} is the lock of no target of {spec.path.name}; delete it unless another "
        "specification uses it"
        for name in sorted(written - locks)
    )


def _is_our_own(path: Path) -> bool:
    """Whether `buildmatrix lock` wrote a file."""
    try:
        with path.open("rb") as file:
            return file.read(len(LOCK_HEADER)) == LOCK_HEADER.encode()
    except OSError:
        return False
