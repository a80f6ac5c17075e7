"""State of locks: fit to their inputs, unused locks, and changes by a new lock."""

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

# Changes


#: Name → version.
Versions = Mapping[str, str]


def versions_of(lock: Lock) -> Versions:
    """Return the versions in a lock."""
    return {package.name: package.version for package in lock.packages}


def versions_in(path: Path) -> Versions | None:
    """Return the versions in the lock at `path`; None if it is missing or unreadable."""
    try:
        return versions_of(read_lock(path))
    except SpecError:
        return None


def changes(
    before: Mapping[str, Versions | None], after: Mapping[str, Versions]
) -> tuple[str, ...]:
    """Return one line per change, with its targets unless it is for all that were locked.

    `before` and `after` are by target. A target without an old lock has no changes.
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


# State


def staleness(spec: Spec, target: Target) -> str | None:
    """Return why the lock of `target` does not fit its inputs, or None; see `current`."""
    if target.committed_lock:
        return trouble_with(spec.root, target)
    present = current(spec, target)
    return present if isinstance(present, str) else None


def current(spec: Spec, target: Target) -> Lock | str:
    """Return the resolved lock of `target`, or why it does not fit its inputs.

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
        return f"{target.lock} does not record its inputs"
    now = input_values(spec.root, target, requirements)
    return difference(record.inputs, now) or lock


def unused_locks(root: Path, targets: Sequence[Target]) -> tuple[str, ...]:
    """Return one sentence per lock of the project that the resolved `targets` do not use."""
    unused: dict[str, str] = {}
    for target in targets:
        for name in COMMANDS:
            label = posixpath.join(posixpath.dirname(target.pyproject or ""), name)
            if (root / label).is_file():
                unused[label] = " in place of `requirements`" if target.requirements else ""
    return tuple(
        f"{label} is unused: versions are resolved anew; to install its versions, "
        f"write `lock = {toml_string(label)}`{instead}"
        for label, instead in sorted(unused.items())
    )


def leftovers(spec: Spec) -> tuple[str, ...]:
    """Return one sentence per lock that `buildmatrix lock` wrote and that no target uses.

    Only the folders of present locks are searched. They may also have locks of another
    specification: so nothing is removed.
    """
    locks = {target.lock for target in spec.targets}
    written = {
        f"{folder}/{path.name}".removeprefix("./")
        for folder in {lock.rpartition("/")[0] or "." for lock in locks}
        for path in (spec.root / folder).glob("*.toml")
        if _is_our_own(path)
    }
    return tuple(
        f"{name} belongs to no target of {spec.path.name}; delete it unless another "
        "specification uses it"
        for name in sorted(written - locks)
    )


def _is_our_own(path: Path) -> bool:
    """Return True if `buildmatrix lock` wrote a file."""
    try:
        with path.open("rb") as file:
            return file.read(len(LOCK_HEADER)) == LOCK_HEADER.encode()
    except OSError:
        return False
