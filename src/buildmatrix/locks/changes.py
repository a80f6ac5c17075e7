"""What a new lock has in place of the old one, in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from buildmatrix.errors import SpecError
from buildmatrix.locks.model import Lock
from buildmatrix.locks.pylock_reader import read_lock

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
