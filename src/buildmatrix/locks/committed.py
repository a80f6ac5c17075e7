"""Locks that somebody committed, whatever tool wrote them, as one target would install them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import SpecError, UsageError
from buildmatrix.locks import committed_staleness, pinned, pipfilelock, poetrylock, pylock, uvlock
from buildmatrix.locks.lock_file import open_lock
from buildmatrix.locks.lookup import Pins
from buildmatrix.locks.model import File, Lock, Staleness
from buildmatrix.locks.projects import find_project
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.uvsettings import settings_of
from buildmatrix.parsing import requirement_or_none
from buildmatrix.spec.model import is_pylock
from buildmatrix.toml import string, strings, tables, tool_table


def is_lock(name: str) -> bool:
    """Whether a file is a lock by its name."""
    return is_pylock(name) or name in _READERS


def export_command(label: str) -> str:
    """The command that exports a lock which only its own tool reads; empty for other files."""
    name = label.rpartition("/")[2]
    if name == "pdm.lock":
        return "pdm export -f pylock -o pylock.toml"
    if name.endswith(".py.lock"):
        script = label.removesuffix(".lock")
        output = f"pylock.{name.removesuffix('.py.lock')}.toml"
        return shlex.join(["uv", "export", "--script", script, "-o", output])
    return ""


def read_committed(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    """What a lock holds for a target, and why it is older than its inputs, where it is.

    Raises `SpecError` for a lock that is broken or is for other targets, `UsageError` for a file
    whose name is not that of a lock.
    """
    name = selection.path.name
    if is_pylock(name):
        pins, stale = Pins(pylock.read(open_lock(selection, "")), {}), None
    elif name in _READERS:
        pins, stale = _READERS[name](selection)
    elif name.endswith((".txt", ".in")):
        pins, command = pinned.read(selection)
        stale = committed_staleness.pinned_staleness(selection, pins.lock, command)
    elif export := export_command(selection.label):
        made = f"{selection.label} is not read; `{export}` makes a lock that is"
        raise UsageError(made)
    else:
        readable = ", ".join(["pylock.toml", *_READERS, "a pinned requirements file (*.txt)"])
        raise UsageError(f"{selection.label} is not a lock that can be read; those are {readable}")
    lock = replace(pins.lock, decided=pins.lock.decided | _decided(selection))
    return replace(pins, lock=_rooted(lock, selection.path.parent)), stale


def _decided(selection: LockSelection) -> frozenset[str]:
    """The project beside a lock, and what its settings for uv say in place of wheels."""
    project = find_project(*selection.beside("pyproject.toml"))
    names = {project.name} if project is not None else set()
    if project is not None:
        names.add(canonicalize_name(string(tool_table(project.document, "poetry").get("name"))))
    try:
        settings = settings_of(selection.path.parent)
    except SpecError:
        settings = {}
    lines = strings(settings.get("override-dependencies"))
    for line in (*lines, *strings(settings.get("exclude-dependencies"))):
        requirement = requirement_or_none(line)
        names |= {canonicalize_name(requirement.name)} if requirement is not None else set()
    for item in tables(settings.get("dependency-metadata")):
        names.add(canonicalize_name(string(item.get("name"))))
    return frozenset(names - {""})


def _uv(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    file = open_lock(selection, "uv lock")
    lock = uvlock.read(file)
    return Pins(lock, {}), committed_staleness.uv_staleness(file, lock)


def _poetry(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    file = open_lock(selection, "poetry lock")
    # What the project asks for and the lock does not hold is an error of `read`.
    return Pins(poetrylock.read(file), {}), None


def _pipenv(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    file = open_lock(selection, "pipenv lock")
    lock, hashes = pipfilelock.read(file)
    return Pins(lock, hashes), committed_staleness.pipenv_staleness(file)


_READERS: Mapping[str, Callable[[LockSelection], tuple[Pins, Staleness | None]]] = {
    "uv.lock": _uv,
    "poetry.lock": _poetry,
    "Pipfile.lock": _pipenv,
}


def _rooted(lock: Lock, folder: Path) -> Lock:
    """The lock with the paths of local files as seen from here, not from the lock."""

    def rooted(file: File) -> File:
        if not file.url or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", file.url):
            return file
        return replace(file, url=str(folder / file.url))

    return replace(
        lock,
        packages=tuple(
            replace(
                package,
                wheels=tuple(map(rooted, package.wheels)),
                sdist=package.sdist and rooted(package.sdist),
            )
            for package in lock.packages
        ),
    )
