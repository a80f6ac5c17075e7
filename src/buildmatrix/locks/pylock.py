"""A PEP 751 lock of any tool, as one target would install it.

Format: https://packaging.python.org/en/latest/specifications/pylock-toml/, "Installation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.command import CommandInputs, command_of
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.markers import BrokenMarker
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.pylock_reader import entries_in
from buildmatrix.locks.selection import LockSelection
from buildmatrix.toml import string, strings, tables


def read(file: LockFile) -> Lock:
    """The packages of a `pylock.toml` that are for the target.

    Raises `SpecError` for a lock that is broken, or that is not for the target at all.
    """
    selection, document = file.selection, file.document
    extras, groups = (
        set(map(canonicalize_name, strings(document.get(key))))
        for key in ("extras", "dependency-groups")
    )
    default = set(map(canonicalize_name, strings(document.get("default-groups"))))
    # A default group need not be one that can be asked for (PEP 751, `default-groups`).
    selection.check(extras, groups | default)
    with_defaults = selection.with_defaults(default)
    _check_environment(document, with_defaults)
    via: dict[str, set[str]] = {}
    inputs = CommandInputs(selection, command_of(file.text))

    def keep(item: Mapping[str, object]) -> bool:
        try:
            fits = with_defaults.fits(string(item.get("marker")), with_defaults.extras)
        except BrokenMarker as error:
            name = item.get("name")
            problem = Problem(
                f"package `{name}`: its `marker` is not valid: {error}", selection.label
            )
            raise SpecError([problem]) from error
        if fits:
            with_defaults.check_python(
                string(item.get("requires-python")), f"package `{item.get('name')}`"
            )
            for dependency in tables(item.get("dependencies")):
                via.setdefault(string(dependency.get("name")), set()).add(string(item.get("name")))
        return fits

    lock, _ = entries_in(file.text, document, selection.path, selection.label, keep)
    _check_names(lock.packages, selection.label)
    return replace(
        lock,
        digest=file.digest,
        left_out=with_defaults.left_out(extras, groups),
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


def _check_names(packages: Sequence[Package], label: str) -> None:
    """Raise `SpecError` where one selection holds two entries of a name, as PEP 751 demands."""
    seen: dict[str, Package] = {}
    problems = []
    for package in packages:
        other = seen.setdefault(package.name, package)
        if other is not package:
            entries = " and ".join(
                f"{one.version or 'an entry'}" + (f" ({one.place})" if one.place else "")
                for one in (other, package)
            )
            problem = f"two entries of `{package.name}` are for one target: {entries}"
            problems.append(Problem(problem, label, hint="ask for other extras, or lock again"))
    if problems:
        raise SpecError(problems)


def _check_environment(document: Mapping[str, object], selection: LockSelection) -> None:
    target = selection.target
    selection.check_python(string(document.get("requires-python")))
    environments = strings(document.get("environments"))
    try:
        fits = not environments or any(selection.fits(marker) for marker in environments)
    except BrokenMarker as error:
        raise SpecError(
            [Problem(f"`environments` holds what is not a valid marker: {error}", selection.label)]
        ) from error
    if not fits:
        problem = f"none of its `environments` is {target.platform} with Python {target.python}"
        raise SpecError([Problem(problem, selection.label)])
