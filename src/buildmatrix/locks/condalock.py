"""Locks of conda packages: `conda-lock.yml` and `pixi.lock`, one environment on one platform.

Formats: `conda_lock/lockfile/v1/models.py` of conda-lock (version 1); `rattler_lock/src/parse` of
rattler (versions 4 to 7 of `pixi.lock`). Nothing is requested from a channel: the lock has name,
version, build, requirements, hash and size.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.strict import Table, Value, YamlError, parse_yaml
from buildmatrix.base.text import listing
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.locks.conda_packages import (
    HINT,
    HINT_PIXI,
    LockedEntry,
    check_names,
    file_parts,
    find_unread,
    hint_for,
    list_of,
    make_conda_package,
    make_python_package,
    table_of,
    tables_of,
    text_of,
    without_token,
)
from buildmatrix.locks.conda_requests import (
    Requests,
    add_askers,
    environment_requests,
    pixi_requests,
    pixi_staleness,
)
from buildmatrix.locks.lines import check_count, decode, read_bytes
from buildmatrix.locks.model import LeftOut, Lock, Staleness
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import is_pixi_lock

#: Names of platforms: of images, and of conda.
CONDA_PLATFORMS = {"linux/amd64": "linux-64", "linux/arm64": "linux-aarch64"}
#: Bytes of a lock; the largest real ones have 5 MB.
LARGEST_LOCK = 16 << 20
#: Packages of one environment; the largest real ones have 1,000.
MOST_IN_ENVIRONMENT = 5_000
_PIXI_VERSIONS = ("4", "5", "6", "7")
#: Keys of a package with its place; that of the second is `NAME[HASH] @ FOLDER`.
_PIXI_KINDS = ("conda", "conda_source", "pypi")
_PLATFORM = re.compile(r"(?:linux|osx|win|emscripten|wasi|freebsd|zos)-[a-z0-9_]+|noarch")
#: Categories of conda-lock that are installed by default.
_MAIN, _DEV = "main", "dev"
#: The environment that pixi installs if none is named.
DEFAULT_ENVIRONMENT = "default"


class _Environment(Struct, frozen=True):
    """The packages of one environment on one platform."""

    entries: tuple[LockedEntry, ...]
    left_out: LeftOut
    #: In words: `environment `cuda` for linux-64`.
    title: str
    #: Requests of the manifest.
    requests: Requests


def is_platform(name: str) -> bool:
    """Return True for a name of conda's platforms: `linux-64`."""
    return _PLATFORM.fullmatch(name) is not None


def read_conda_lock(selection: LockSelection) -> tuple[Lock, Staleness | None]:
    """Read what is installed on the target from `pixi.lock` or `conda-lock.yml`.

    The extra is the environment of pixi, groups are categories of conda-lock. Returns also why the
    lock is older than its manifest, if it is. Raises `SpecError`.
    """
    data = read_bytes(selection.path, selection.label, hint_for(selection.label), LARGEST_LOCK)
    text = decode(data, selection.label)
    categories = frozenset(name for name in selection.groups if not is_platform(name))
    selection = replace(selection, groups=categories)
    platform = CONDA_PLATFORMS.get(selection.target.platform, selection.target.platform)
    environment = _environment(text, selection, platform)
    packages = [make_conda_package(item, selection.label) for item in environment.entries if
                item.is_conda]  # fmt: skip
    check_names(packages, selection.label)
    python = next((item for item in packages if item.name == f"{CONDA_PREFIX}python"), None)
    if python is not None and (minor := _minor(python.version)):
        selection.check_python(f"=={minor}.*", environment.title)
    requirements = {item.place: item.requires for item in environment.entries if item.is_conda}
    requests = environment.requests
    conda = tuple(add_askers(packages, requirements, requests))
    pypi = tuple(
        replace(package, via=tuple(requests.get(package.name, ())))
        for item in environment.entries
        if not item.is_conda
        for package in [make_python_package(item, selection)]
    )
    check_names(pypi, selection.label)
    is_pixi = is_pixi_lock(selection.label)
    stale = pixi_staleness(selection, requests, conda) if is_pixi else None
    return Lock(
        path=selection.path,
        packages=pypi,
        inputs="",
        digest="sha256:" + hashlib.sha256(data).hexdigest(),
        left_out=environment.left_out,
        conda=conda,
        unread=tuple(find_unread(conda)),
        decided=frozenset(name for package in conda for name in package.provides),
    ), stale


def locked_python(text: str, label: str, extras: frozenset[str], platform: str) -> str:
    """Return the minor version of Python in the environment; empty if it has none."""
    document = _document(text, label)
    if is_pixi_lock(label):
        _, environment = _pixi_environment(document, label, extras)
        by_platform = table_of(environment.get("packages"), label, "packages")
        names = [
            text_of(value)
            for key in _platforms_of(document, by_platform, label, platform)[:1]
            for part in by_platform.get(key) or ()
            if isinstance(part, Table)
            for value in part.values()
        ]
    else:
        names = [
            text_of(item.get("url"))
            for item in tables_of(document.get("package"), label, "package")
            if item.get("platform") == platform and item.get("manager") == "conda"
        ]
    for name in names:
        found = file_parts(name)
        if found is not None and found[0] == "python":
            return _minor(found[1])
    return ""


def locked_pythons(path: Path, label: str, platform: str) -> dict[str, str]:
    """Return the environments of a lock, each with its Python as by `locked_python`.

    That of a `conda-lock.yml` has no name. Raises `SpecError`.
    """
    text = decode(read_bytes(path, label, hint_for(label), LARGEST_LOCK), label)
    names = _names(_document(text, label)) if is_pixi_lock(label) else ("",)
    platform = CONDA_PLATFORMS.get(platform, platform)
    extras = {name: frozenset([canonicalize_name(name)] if name else ()) for name in names}
    return {name: locked_python(text, label, extras[name], platform) for name in names}


# Environments


@lru_cache(maxsize=2)  # Each backend reads the same one.
def _parsed(text: str) -> Value:
    return parse_yaml(text)


def _document(text: str, label: str) -> Table:
    try:
        document = _parsed(text)
    except YamlError as error:
        place = error.line or None, error.column or None
        raise SpecError(
            [Problem(f"this is no lock: {error}", label, *place, hint_for(label))]
        ) from error
    if not isinstance(document, Table):
        raise SpecError(
            [Problem("this is no lock: it is not a table", label, hint=hint_for(label))]
        )
    version = document.get("version")
    known = _PIXI_VERSIONS if is_pixi_lock(label) else ("1",)
    if version not in known:
        said = f"`version` is {str(version)[:20]}, and only {listing(known)} can be read"
        raise SpecError([Problem(said, label, hint=hint_for(label))])
    return document


def _environment(text: str, selection: LockSelection, platform: str) -> _Environment:
    document = _document(text, selection.label)
    read = _pixi if is_pixi_lock(selection.label) else _conda_lock
    found = read(document, selection, platform)
    if len(found.entries) > MOST_IN_ENVIRONMENT:
        problem = f"{found.title} holds more than {MOST_IN_ENVIRONMENT:,} packages"
        raise SpecError([Problem(problem, selection.label)])
    return found


def _pixi_environment(document: Table, label: str, extras: frozenset[str]) -> tuple[str, Table]:
    """Return the requested environment of `pixi.lock`, else `default`, else the only one."""
    environments = table_of(document.get("environments"), label, "environments")
    names: dict[str, str] = {canonicalize_name(name): name for name in environments}
    if len(extras) > 1:
        raise SpecError([Problem("name one environment, as each is installed alone", label)])
    wanted = next(
        iter(extras),
        DEFAULT_ENVIRONMENT
        if DEFAULT_ENVIRONMENT in names or len(names) != 1
        else next(iter(names)),
    )
    if wanted not in names:
        hint = f"environments here: {listing(sorted(environments)) or 'none'}"
        raise SpecError([Problem(f"there is no environment `{wanted}`", label, hint=hint)])
    name = names[wanted]
    return name, table_of(environments[name], label, name)


def _pixi(document: Table, selection: LockSelection, platform: str) -> _Environment:
    label = selection.label
    name, environment = _pixi_environment(document, label, selection.extras)
    if groups := sorted(selection.groups | selection.without):
        hint = f"write {label}[ENVIRONMENT]:PLATFORM"
        raise SpecError([Problem(f"`{groups[0]}` is not a platform of conda", label, hint=hint)])
    by_platform = table_of(environment.get("packages"), label, "packages")
    title = f"environment `{name}` for {platform}"
    keys = _platforms_of(document, by_platform, label, platform, selection.target.backend)
    if not keys:
        hint = f"it is for {listing(sorted(by_platform)) or 'none'}"
        raise SpecError([Problem(f"there is no {title}", label, environment.line, hint=hint)])
    if len(keys) > 1:
        problem = f"the {title} has several platforms of that kind: {listing(keys)}"
        hint = "give each of them an environment of its own"
        raise SpecError([Problem(problem, label, environment.line, hint=hint)])
    packages = tables_of(document.get("packages"), label, "packages")
    check_count(len(packages), label)
    by_key: dict[tuple[str, str], LockedEntry] = {}
    for table in packages:
        entry = _pixi_entry(table, label)
        if by_key.setdefault(_locate(table), entry) is not entry:
            problem = f"two packages have the file {without_token(entry.location)[:200]}"
            raise SpecError([Problem(problem, label, table.line, hint=HINT_PIXI)])
    chosen: dict[tuple[str, str], LockedEntry] = {}
    for item in tables_of(by_platform[keys[0]], label, keys[0]):
        key = _locate(item)
        if key not in by_key:
            problem = f"{title} has {without_token(key[1])[:200]}, which is not under `packages`"
            raise SpecError([Problem(problem, label, item.line, hint=HINT_PIXI)])
        chosen[key] = by_key[key]
    others = tuple(sorted(other for other in _names(document) if other != name))
    requests = pixi_requests(selection, name, platform)
    return _Environment(tuple(chosen.values()), LeftOut(environments=others), title, requests)


def _names(document: Table) -> Iterable[str]:
    environments = document.get("environments")
    return environments if isinstance(environments, Table) else ()


def _platforms_of(
    document: Table, by_platform: Table, label: str, platform: str, backend: str = ""
) -> list[str]:
    """Return the keys of `by_platform` for a platform; since version 7 they are names.

    A name may stand for machines with CUDA alone. Of several, pixi takes the one that fits.
    """
    has_cuda: dict[str, bool] = {}
    for table in tables_of(document.get("platforms"), label, "platforms"):
        name = text_of(table.get("name"))
        if name in by_platform and (text_of(table.get("subdir")) or name) == platform:
            virtual = map(text_of, list_of(table.get("virtual-packages"), label, table.line))
            has_cuda[name] = any(text.startswith("__cuda=") for text in virtual)
    if not has_cuda:
        return [platform] if platform in by_platform else []
    fitting = [name for name, cuda in has_cuda.items() if cuda == (backend == "cuda")]
    return fitting if fitting and len(has_cuda) > 1 else list(has_cuda)


def _locate(table: Table) -> tuple[str, str]:
    """Return kind and place of a package; up to version 5 it has a `kind`, and `url` or `path`."""
    kind = text_of(table.get("kind")) or next((kind for kind in _PIXI_KINDS if kind in table), "")
    return kind, text_of(table.get(kind) or table.get("url") or table.get("path"))


def _pixi_entry(table: Table, label: str) -> LockedEntry:
    """Read an entry of `packages`."""
    kind, location = _locate(table)
    if kind not in _PIXI_KINDS or not location:
        problem = "this package has neither `conda` nor `pypi` with its place"
        raise SpecError([Problem(problem, label, table.line, hint=HINT_PIXI)])
    name = text_of(table.get("name"))
    if kind == "conda_source":
        name, _, location = location.partition(" @ ")
        name = name.partition("[")[0]
    return LockedEntry(
        table,
        location,
        kind != "pypi",
        name,
        text_of(table.get("version")),
        text_of(table.get("build")),
        tuple(map(text_of, list_of(table.get("depends"), label, table.line))),
        text_of(table.get("sha256")),
        f"{label}:{table.line}",
    )


def _conda_lock(document: Table, selection: LockSelection, platform: str) -> _Environment:
    label = selection.label
    if selection.extras:
        hint = f"categories are written behind a colon: {label}:dev"
        raise SpecError([Problem("a conda-lock.yml has no environments", label, hint=hint)])
    tables = tables_of(document.get("package"), label, "package")
    check_count(len(tables), label)
    categories = {text_of(table.get("category")) or _MAIN for table in tables} - {_MAIN}
    selection.check((), categories)
    chosen = selection.with_defaults({_DEV} & categories)
    platforms = {text_of(table.get("platform")) for table in tables}
    if platform not in platforms:
        hint = f"it is for {listing(sorted(platforms)) or 'none'}"
        raise SpecError([Problem(f"it has no package for {platform}", label, hint=hint)])
    entries: dict[tuple[bool, str], LockedEntry] = {}
    for table in tables:
        category = canonicalize_name(text_of(table.get("category")) or _MAIN)
        if table.get("platform") != platform or category not in {_MAIN, *chosen.groups}:
            continue
        entry = _conda_lock_entry(table, label)
        entries.setdefault((entry.is_conda, entry.location), entry)
    metadata = document.get("metadata")
    sources = metadata.get("sources") if isinstance(metadata, Table) else None
    names = map(text_of, sources) if isinstance(sources, list) else ()
    return _Environment(
        tuple(entries.values()),
        chosen.left_out((), categories),
        f"the environment for {platform}",
        environment_requests(selection, names),
    )


def _conda_lock_entry(table: Table, label: str) -> LockedEntry:
    manager, location = text_of(table.get("manager")), text_of(table.get("url"))
    if manager not in ("conda", "pip") or not location:
        problem = "this package has no `url`, or its `manager` is neither conda nor pip"
        raise SpecError([Problem(problem, label, table.line, hint=HINT)])
    requires = table.get("dependencies")
    requires = requires if isinstance(requires, Table) else Table()
    hashes = table.get("hash")
    return LockedEntry(
        table,
        location,
        manager == "conda",
        text_of(table.get("name")),
        text_of(table.get("version")),
        text_of(table.get("build")),
        tuple(f"{name} {text_of(spec)}".rstrip() for name, spec in requires.items()),
        text_of(hashes.get("sha256")) if isinstance(hashes, Table) else "",
        f"{label}:{table.line}",
    )


def _minor(version: str) -> str:
    match = re.match(r"3\.\d{1,2}(?=\D|$)", version)
    return match[0] if match else ""
