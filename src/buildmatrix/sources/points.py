"""Targets for which a source is read, if it is not the specification's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from buildmatrix.base.errors import UsageError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.catalogue.releases import runtime_of_build
from buildmatrix.locks.selection import PLATFORMS
from buildmatrix.matrix.model import ANY, PLATFORM, Spec, Target, bare_target

#: Backends that a source is held against where nothing says which ones matter.
BACKENDS = ("cuda", "rocm", "oneapi", "cpu")
#: `cuda12.8`: a backend and one of its runtimes.
_WITH_RUNTIME = re.compile(r"([a-z][a-z-]*?)(\d[0-9.]*)")
#: Pythons that a source is looked at with, where the running one is too old or too new for it.
_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def spec_targets(
    spec: Spec, globs: Sequence[str], subset: str | None, backends: Sequence[str]
) -> tuple[Target, ...]:
    """The targets of a specification that were asked for. Raises `UsageError` for none."""
    from buildmatrix.matrix.matrix import select

    targets = select(spec, globs, subset)
    if not backends:
        return targets
    chosen = tuple(t for t in targets if any(_is_of(t, backend) for backend in backends))
    for backend in backends:
        if not any(_is_of(target, backend) for target in targets):
            backend_names = ", ".join(dict.fromkeys(target.backend for target in targets))
            raise UsageError(
                f"{spec.path} has no target of backend {backend!r}; it has {backend_names}"
            )
    return chosen


def source_targets(
    spec: Spec | None,
    globs: Sequence[str],
    subset: str | None,
    backends: Sequence[str],
    catalogue_backends: Collection[str],
) -> tuple[Target, ...]:
    """The targets that a source is looked at for: what it would be in each of them.

    With a specification, one target for each backend and runtime of it (the newest Python, the
    first variant, linux/amd64 where there is one), with that target's indexes, replacements and
    images; or exactly those that `globs` and `subset` choose. `backends` narrows, and adds
    backends of the catalogue (`catalogue_backends`) that the specification does not have.
    """
    if spec is None or not spec.targets:
        if globs or subset:
            raise UsageError("--select and --subset need a specification; there is none here")
        return tuple(_bare(name, catalogue_backends) for name in backends or BACKENDS)
    # What reads a specification comes with it: a quarter of the start of a run that has none.
    from buildmatrix.matrix.matrix import select

    targets = select(spec, globs, subset)
    if not globs and subset is None:
        targets = _one_each(targets)
    if not backends:
        return targets
    chosen: dict[str, Target] = {}
    for name in backends:
        targets_of_backend = [target for target in targets if _is_of(target, name)] or [
            _bare(name, catalogue_backends)
        ]
        chosen |= {target.id: target for target in targets_of_backend}
    return tuple(chosen.values())


def choose_python(target: Target, python: str | None, requires_python: str) -> Target:
    """The target with a Python: the given one, its own, or one that `requires_python` allows.

    A target of a specification keeps its own. `requires_python` is a range of versions; empty for
    any. Of those in it the one nearest to the running Python is taken: a lock that was made with
    3.12 says `>=3.12`, and often has wheels for that one alone.
    """
    if python is not None:
        return replace(target, python=python)
    if target.python:
        return target
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        pythons = parse_specifiers(requires_python)
    except InvalidSpecifier:
        pythons = SpecifierSet()
    nearest = sorted(_PYTHONS, key=lambda version: abs(minor(version) - sys.version_info.minor))
    for version in (running, *nearest):
        if any(pythons.contains(f"{version}.{patch}") for patch in (0, 30)):
            return replace(target, python=version)
    return replace(target, python=running)


def minor(python: str) -> int:
    """Return the minor version that Pythons 3 are sorted by."""
    return int(python.partition(".")[2])


def check_python(python: str | None) -> None:
    """Raise `UsageError` unless the text is a minor version of Python 3."""
    if python is not None and not re.fullmatch(r"3\.\d{1,2}", python):
        raise UsageError(
            f"{python!r} is not a Python version; write its minor version, such as 3.12"
        )


def check_platform(platform: str | None) -> None:
    """Raise `UsageError` for a platform that no wheels can be locked for."""
    if platform is not None and platform not in PLATFORMS:
        raise UsageError(
            f"{platform!r} is not a platform that wheels can be chosen for; write "
            f"{' or '.join(PLATFORMS)}"
        )


def _is_of(target: Target, backend: str) -> bool:
    return backend in (target.backend, f"{target.backend}{target.runtime}")


def _one_each(targets: Sequence[Target]) -> tuple[Target, ...]:
    chosen: dict[tuple[str, str], Target] = {}
    for target in targets:
        key = target.backend, target.runtime
        best = chosen.get(key)
        if best is None or _rank(target) > _rank(best):
            chosen[key] = target
    return tuple(chosen.values())


def _rank(target: Target) -> tuple[bool, tuple[tuple[bool, int, str], ...]]:
    from buildmatrix.matrix.matrix import version_order

    return target.platform == PLATFORM, version_order(target.python)


def _bare(name: str, catalogue_backends: Collection[str]) -> Target:
    backend, runtime = name, ANY
    if name not in catalogue_backends and (match := _WITH_RUNTIME.fullmatch(name)):
        backend, runtime = match[1], match[2].rstrip(".")
    if backend not in catalogue_backends:
        if (suggestion := _suggestion(name)) is not None:
            raise UsageError(f"there is no backend {name!r}; write {suggestion}")
        raise unknown_backend(name, catalogue_backends)
    return bare_target(name, backend, runtime)


def _suggestion(name: str) -> str | None:
    """The backend that somebody calls by another name, by that of an index, or misspells."""
    word = name.lower()
    entries = load().backends
    for backend, entry in entries.items():
        if word in entry.aliases:
            return backend
        if any(route.name == word for route in entry.indexes):
            runtime = runtime_of_build(word)
            return f"{backend}{runtime}" if runtime is not None else backend
    return next(iter(get_close_matches(word, entries, 1)), None)
