"""Dependents of locked conda packages: other packages of the lock, and lines of its manifest.

Formats: `pixi.toml`, and `[tool.pixi]` of a `pyproject.toml`
(https://pixi.sh/latest/reference/pixi_manifest/); the `environment.yml` that `metadata.sources` of
a `conda-lock.yml` names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.base.parsing import requirement_or_none
from buildmatrix.base.toml import mapping, strings, tool_table
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.locks.lines import decode, read_bytes
from buildmatrix.locks.model import CondaPackage, Lock, Package, Staleness
from buildmatrix.locks.projects import Project, find_project, line_of_key, places
from buildmatrix.locks.requirement_files import (
    LARGEST_ENVIRONMENT,
    is_environment,
    read_environment,
)
from buildmatrix.locks.selection import LockSelection

#: A distribution, or `conda:` and the normalized name of a package → `file:line` of its requests.
Requests = Mapping[str, Sequence[str]]

#: A requirement: its channel, its name, and the rest.
_REQUIREMENT = re.compile(r"\s*(?:[^\s:]*::?)?([A-Za-z0-9_][A-Za-z0-9_.-]*)(.*)", re.DOTALL)
_FLOOR = re.compile(r"[>=~]=?\s*([0-9][0-9.]*)|^\s+([0-9][0-9.]*)")
_DEFAULT = "default"
_CONDA_KEYS = ("dependencies", "host-dependencies", "build-dependencies")
_PYPI_KEY = "pypi-dependencies"
#: Environment files of one lock that are read.
_MOST_SOURCES = 20


def request_name(name: str) -> str:
    """Return the key of a conda package in `Requests`."""
    return f"{CONDA_PREFIX}{canonicalize_name(name.removeprefix(CONDA_PREFIX))}"


# The manifest of pixi


class _Manifest(Struct, frozen=True):
    project: Project
    #: The tables of pixi.
    table: Mapping[str, object]
    #: Start of the headers of these: `tool.pixi.`.
    header: str


def pixi_requests(selection: LockSelection, environment: str, platform: str) -> Requests:
    """Return the requests of an environment on one of conda's platforms, such as `linux-64`.

    Empty if there is no manifest beside the lock, or if it cannot be read.
    """
    manifest = _find_manifest(selection)
    requests: dict[str, list[str]] = {}
    for name, place in _requests(manifest, environment, platform) if manifest is not None else ():
        requests.setdefault(name, []).append(place)
    return requests


def _find_manifest(selection: LockSelection) -> _Manifest | None:
    """Return the manifest that pixi takes: `pixi.toml` comes first."""
    for name in ("pixi.toml", "pyproject.toml"):
        path, label = selection.beside(name)
        project = find_project(path, label) if path.is_file() else None
        if project is not None and name == "pixi.toml":
            return _Manifest(project, project.document, "")
        if project is not None and (table := tool_table(project.document, "pixi")):
            return _Manifest(project, table, "tool.pixi.")
    return None


def _requests(manifest: _Manifest, environment: str, platform: str) -> Iterator[tuple[str, str]]:
    project, features = manifest.project, _features(manifest.table, environment)
    for feature in features:
        table, header = manifest.table, manifest.header
        if feature != _DEFAULT:
            table = mapping(mapping(table.get("feature")).get(feature))
            header = f"{header}feature.{feature}."
        scopes = [(header, table)]
        for selector, scope in mapping(table.get("target")).items():
            if selector in (platform, platform.partition("-")[0], "unix"):
                scopes.append((f"{header}target.{selector}.", mapping(scope)))
        for start, scope in scopes:
            for key in (*_CONDA_KEYS, _PYPI_KEY):
                for name in mapping(scope.get(key)):
                    line = line_of_key(project.text, name, f"{start}{key}")
                    asked = canonicalize_name(name) if key == _PYPI_KEY else request_name(name)
                    yield asked, f"{project.label}:{line}"
    if manifest.header:
        # Extras and groups of a pyproject.toml are features of their names.
        parts = {"" if name == _DEFAULT else canonicalize_name(name) for name in features}
        yield from places(project, {*parts, *(f":{part}" for part in parts if part)}).items()


def _features(table: Mapping[str, object], environment: str) -> Sequence[str]:
    entry = mapping(table.get("environments")).get(environment)
    if isinstance(entry, list):
        return list(dict.fromkeys([*strings(entry), _DEFAULT]))
    settings = mapping(entry)
    default = [] if settings.get("no-default-feature") is True else [_DEFAULT]
    return list(dict.fromkeys([*strings(settings.get("features")), *default]))


def pixi_staleness(
    selection: LockSelection, requests: Requests, packages: Iterable[CondaPackage]
) -> Staleness | None:
    """Return the first conda package that the manifest requests and the lock lacks, if any."""
    present = {request_name(package.name) for package in packages if package.file is not None}
    for name, lines in requests.items():
        if name.startswith(CONDA_PREFIX) and name not in present:
            plain = name.removeprefix(CONDA_PREFIX)
            return Staleness(f"{lines[0]} asks for {plain}, and {selection.label} has none")
    return None


# Sources of a conda-lock.yml


def environment_requests(selection: LockSelection, sources: Iterable[str]) -> Requests:
    """Return the requests of the environment files that a lock was made from, as far as present."""
    requests: dict[str, list[str]] = {}
    for source in list(sources)[:_MOST_SOURCES]:
        name = posixpath.normpath(source)
        path, label = selection.beside(name)
        if not is_environment(name) or name.startswith(("/", "../")) or not path.is_file():
            continue
        try:
            data = read_bytes(path, label, "check the path", LARGEST_ENVIRONMENT)
            environment = read_environment(decode(data, label), label)
        except SpecError:
            continue
        for package in environment.packages(label):
            requests.setdefault(request_name(package.name), []).extend(package.via)
        for item in environment.pip_lines():
            requirement = requirement_or_none(item.text)
            if requirement is not None:
                asked = canonicalize_name(requirement.name)
                requests.setdefault(asked, []).append(f"{label}:{item.line}")
    return requests


# Other packages of the lock


def add_askers(
    packages: Sequence[CondaPackage],
    requirements: Mapping[str, Iterable[str]],
    requests: Requests,
) -> Iterator[CondaPackage]:
    """Yield the packages with their dependents, and what they require that the lock lacks.

    `requirements` are those of the package at each place. Virtual packages (`__cuda`) stand for
    something of the machine, and are never in a lock. The version of one is the highest that is
    required.
    """
    present = {package.name for package in packages}
    via: dict[str, set[str]] = {}
    floors: dict[str, list[str]] = {}
    for package in packages:
        for text in requirements[package.place]:
            match = _REQUIREMENT.match(text)
            if match is None:
                continue
            name = f"{CONDA_PREFIX}{match[1].lower()}"
            if name not in present:
                floor = _FLOOR.search(match[2])
                floors.setdefault(name, []).append((floor[1] or floor[2]) if floor else "")
            if name != package.name:
                via.setdefault(name, set()).add(package.name)
    for package in packages:
        askers = {*via.get(package.name, ()), *requests.get(request_name(package.name), ())}
        yield replace(package, via=tuple(sorted(askers)))
    for name in sorted(floors):
        version = max(floors[name], key=_numbers)
        askers = via.get(name, set())
        yield CondaPackage(name, version or "any", None, (), False, tuple(sorted(askers)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in version.split(".") if part)


def chain_packages(lock: Lock, equivalents: Mapping[str, str]) -> dict[str, Package]:
    """Return the packages of a lock by each name that they may have in an environment.

    There a conda package with one Python distribution has the name of that; `equivalents` are the
    names of these where a lock does not have them.
    """
    packages = {package.name: package for package in (*lock.packages, *lock.conda)}
    for package in lock.conda:
        plain = package.name.removeprefix(CONDA_PREFIX)
        provided = package.provides if isinstance(package, CondaPackage) else ()
        for name in (plain, canonicalize_name(plain), equivalents.get(plain, plain), *provided):
            packages.setdefault(name, package)
    return packages
