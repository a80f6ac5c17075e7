"""A PEP 751 lock of any tool, as one target would install it.

Format: https://packaging.python.org/en/latest/specifications/pylock-toml/, "Installation".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.command import CommandInputs, command_of
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.markers import BrokenMarker
from buildmatrix.locks.model import Lock
from buildmatrix.locks.read import entries_in
from buildmatrix.locks.text import string, strings, tables


def read(file: LockFile) -> Lock:
    """The packages of a `pylock.toml` that are meant for the target.

    Raises `SpecError` for a lock that is broken, or that is not for the target at all.
    """
    ask, document = file.ask, file.document
    extras, groups = (
        set(map(canonicalize_name, strings(document.get(key))))
        for key in ("extras", "dependency-groups")
    )
    default = set(map(canonicalize_name, strings(document.get("default-groups"))))
    # A default group need not be one that can be asked for (PEP 751, `default-groups`).
    ask.check(extras, groups | default)
    here = ask.with_defaults(default)
    _check_environment(document, here)
    via: dict[str, set[str]] = {}
    inputs = CommandInputs(ask, command_of(file.text))

    def keep(item: Mapping[str, object]) -> bool:
        try:
            meant = here.fits(string(item.get("marker")), here.extras)
        except BrokenMarker as error:
            name = item.get("name")
            problem = Problem(f"package `{name}`: its `marker` is none: {error}", ask.label)
            raise SpecError([problem]) from error
        if meant:
            for dependency in tables(item.get("dependencies")):
                via.setdefault(string(dependency.get("name")), set()).add(string(item.get("name")))
        return meant

    lock, _ = entries_in(file.text, document, ask.path, ask.label, keep)
    return replace(
        lock,
        digest=file.digest,
        left_out=here.left_out(extras, groups),
        packages=tuple(
            replace(
                package,
                via=package.via
                or tuple(sorted({*via.get(package.name, ()), *inputs.places(package.name)})),
                source_only=not package.wheels,
            )
            for package in lock.packages
        ),
    )


def _check_environment(document: Mapping[str, object], ask: Ask) -> None:
    target = ask.target
    ask.check_python(string(document.get("requires-python")))
    environments = strings(document.get("environments"))
    try:
        meant = not environments or any(ask.fits(marker) for marker in environments)
    except BrokenMarker as error:
        raise SpecError([Problem(f"`environments` holds no marker: {error}", ask.label)]) from error
    if not meant:
        problem = f"none of its `environments` is {target.platform} with Python {target.python}"
        raise SpecError([Problem(problem, ask.label)])
