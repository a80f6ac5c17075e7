"""Locks of conda packages: `conda-lock.yml` and `pixi.lock`, one environment on one platform.

Formats: `conda_lock/lockfile/v1/models.py` of conda-lock (version 1); `rattler_lock/src/parse` of
rattler (versions 4 to 6 of `pixi.lock`). Nothing is requested from a channel: the lock has name,
version, build, requirements, hash and size. The file of a package is what gets installed, so its
name decides; a lock that says something else of it is refused.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.strict import Table, Value, YamlError, parse_yaml
from buildmatrix.base.text import listing, path_in, without_login
from buildmatrix.facts.inventory.conda import CONDA, CONDA_PREFIX
from buildmatrix.facts.inventory.model import Distribution, Unread
from buildmatrix.locks.conda_requests import (
    Requests,
    add_askers,
    environment_requests,
    pixi_requests,
    pixi_staleness,
)
from buildmatrix.locks.lines import check_count, decode, read_bytes
from buildmatrix.locks.model import (
    CondaPackage,
    LeftOut,
    Lock,
    LockedFile,
    Package,
    Sdist,
    Staleness,
    Wheel,
)
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import is_pixi_lock

#: Names of platforms: of images, and of conda.
CONDA_PLATFORMS = {"linux/amd64": "linux-64", "linux/arm64": "linux-aarch64"}
#: Bytes of a lock; the largest real ones have 5 MB.
LARGEST_LOCK = 16 << 20
#: Packages of one environment; the largest real ones have 1,000.
MOST_IN_ENVIRONMENT = 5_000
_PIXI_VERSIONS = ("4", "5", "6")
_PLATFORM = re.compile(r"(?:linux|osx|win|emscripten|wasi|freebsd|zos)-[a-z0-9_]+|noarch")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,200}")
_VERSION = re.compile(r"[A-Za-z0-9_.!+]{1,200}")
_BUILD = re.compile(r"[A-Za-z0-9_.+]{0,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHIVES = (".conda", ".tar.bz2")
#: Categories of conda-lock that are installed by default.
_MAIN, _DEV = "main", "dev"
_DEFAULT = "default"
_HINT_PIXI = "write it again with `pixi lock`"
_HINT = "write it again with `conda-lock lock`"


class _Entry(Struct, frozen=True):
    """One package of the environment."""

    table: Table
    #: URL or path of its file or folder.
    location: str
    is_conda: bool
    #: Name, version and build as the lock has them; empty where only the file has them.
    name: str
    version: str
    build: str
    requires: tuple[str, ...]
    sha256: str
    place: str


class _Environment(Struct, frozen=True):
    """The packages of one environment on one platform."""

    entries: tuple[_Entry, ...]
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
    data = read_bytes(selection.path, selection.label, _hint(selection.label), LARGEST_LOCK)
    text = decode(data, selection.label)
    categories = frozenset(name for name in selection.groups if not is_platform(name))
    selection = replace(selection, groups=categories)
    platform = CONDA_PLATFORMS.get(selection.target.platform, selection.target.platform)
    environment = _environment(text, selection, platform)
    packages = [_conda_package(item, selection.label) for item in environment.entries if
                item.is_conda]  # fmt: skip
    _check_names(packages, selection.label)
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
        for package in [_python_package(item, selection)]
    )
    _check_names(pypi, selection.label)
    is_pixi = is_pixi_lock(selection.label)
    stale = pixi_staleness(selection, requests, conda) if is_pixi else None
    return Lock(
        path=selection.path,
        packages=pypi,
        inputs="",
        digest="sha256:" + hashlib.sha256(data).hexdigest(),
        left_out=environment.left_out,
        conda=conda,
        unread=tuple(_unread(conda)),
        decided=frozenset(name for package in conda for name in package.provides),
    ), stale


def locked_python(text: str, label: str, extras: frozenset[str], platform: str) -> str:
    """Return the minor version of Python in the environment; empty if it has none."""
    document = _document(text, label)
    if is_pixi_lock(label):
        _, environment = _pixi_environment(document, label, extras)
        by_platform = _table(environment.get("packages"), label, "packages")
        names = [_text(part) for part in by_platform.get(platform) or () if isinstance(part, Table)
                 for part in part.values()]  # fmt: skip
    else:
        names = [
            _text(item.get("url"))
            for item in _tables(document.get("package"), label, "package")
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
    text = decode(read_bytes(path, label, _hint(label), LARGEST_LOCK), label)
    names = _names(_document(text, label)) if is_pixi_lock(label) else ("",)
    platform = CONDA_PLATFORMS.get(platform, platform)
    extras = {name: frozenset([canonicalize_name(name)] if name else ()) for name in names}
    return {name: locked_python(text, label, extras[name], platform) for name in names}


def conda_distributions(packages: Iterable[Package]) -> tuple[Distribution, ...]:
    """Return the locked packages of conda as distributions whose files are unknown."""
    return tuple(
        Distribution(package.name, package.version, package.place, installer=CONDA)
        for package in packages
        if isinstance(package, CondaPackage)
    )


# Environments


def _hint(label: str) -> str:
    return _HINT_PIXI if is_pixi_lock(label) else _HINT


@lru_cache(maxsize=2)  # Each backend reads the same one.
def _parsed(text: str) -> Value:
    return parse_yaml(text)


def _document(text: str, label: str) -> Table:
    try:
        document = _parsed(text)
    except YamlError as error:
        place = error.line or None, error.column or None
        raise SpecError(
            [Problem(f"this is no lock: {error}", label, *place, _hint(label))]
        ) from error
    if not isinstance(document, Table):
        raise SpecError([Problem("this is no lock: it is not a table", label, hint=_hint(label))])
    version = document.get("version")
    known = _PIXI_VERSIONS if is_pixi_lock(label) else ("1",)
    if version not in known:
        said = f"`version` is {str(version)[:20]}, and only {listing(known)} can be read"
        raise SpecError([Problem(said, label, hint=_hint(label))])
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
    environments = _table(document.get("environments"), label, "environments")
    names: dict[str, str] = {canonicalize_name(name): name for name in environments}
    if len(extras) > 1:
        raise SpecError([Problem("name one environment, as each is installed alone", label)])
    wanted = next(
        iter(extras), _DEFAULT if _DEFAULT in names or len(names) != 1 else next(iter(names))
    )
    if wanted not in names:
        hint = f"environments here: {listing(sorted(environments)) or 'none'}"
        raise SpecError([Problem(f"there is no environment `{wanted}`", label, hint=hint)])
    name = names[wanted]
    return name, _table(environments[name], label, name)


def _pixi(document: Table, selection: LockSelection, platform: str) -> _Environment:
    label = selection.label
    name, environment = _pixi_environment(document, label, selection.extras)
    if groups := sorted(selection.groups | selection.without):
        hint = f"write {label}[ENVIRONMENT]:PLATFORM"
        raise SpecError([Problem(f"`{groups[0]}` is not a platform of conda", label, hint=hint)])
    by_platform = _table(environment.get("packages"), label, "packages")
    title = f"environment `{name}` for {platform}"
    if platform not in by_platform:
        hint = f"it is for {listing(sorted(by_platform)) or 'none'}"
        raise SpecError([Problem(f"there is no {title}", label, environment.line, hint=hint)])
    packages = _tables(document.get("packages"), label, "packages")
    check_count(len(packages), label)
    by_key: dict[tuple[str, str], _Entry] = {}
    for table in packages:
        entry = _pixi_entry(table, label)
        if by_key.setdefault((_kind(entry), entry.location), entry) is not entry:
            problem = f"two packages have the file {_address(entry.location)[:200]}"
            raise SpecError([Problem(problem, label, table.line, hint=_HINT_PIXI)])
    chosen: dict[tuple[str, str], _Entry] = {}
    for item in _tables(by_platform[platform], label, platform):
        kind = "conda" if "conda" in item else "pypi"
        key = kind, _text(item.get(kind))
        if key not in by_key:
            problem = f"{title} has {_address(key[1])[:200]}, which is not under `packages`"
            raise SpecError([Problem(problem, label, item.line, hint=_HINT_PIXI)])
        chosen[key] = by_key[key]
    others = tuple(sorted(other for other in _names(document) if other != name))
    requests = pixi_requests(selection, name, platform)
    return _Environment(tuple(chosen.values()), LeftOut(environments=others), title, requests)


def _names(document: Table) -> Iterable[str]:
    environments = document.get("environments")
    return environments if isinstance(environments, Table) else ()


def _kind(entry: _Entry) -> str:
    return "conda" if entry.is_conda else "pypi"


def _pixi_entry(table: Table, label: str) -> _Entry:
    """Read an entry of `packages`; up to version 5 it has a `kind`, and `url` or `path`."""
    kind = _text(table.get("kind")) or ("conda" if "conda" in table else "pypi")
    location = _text(table.get(kind) or table.get("url") or table.get("path"))
    if kind not in ("conda", "pypi") or not location:
        problem = "this package has neither `conda` nor `pypi` with its place"
        raise SpecError([Problem(problem, label, table.line, hint=_HINT_PIXI)])
    return _Entry(
        table,
        location,
        kind == "conda",
        _text(table.get("name")),
        _text(table.get("version")),
        _text(table.get("build")),
        tuple(map(_text, _list(table.get("depends"), label, table.line))),
        _text(table.get("sha256")),
        f"{label}:{table.line}",
    )


def _conda_lock(document: Table, selection: LockSelection, platform: str) -> _Environment:
    label = selection.label
    if selection.extras:
        hint = f"categories are written behind a colon: {label}:dev"
        raise SpecError([Problem("a conda-lock.yml has no environments", label, hint=hint)])
    tables = _tables(document.get("package"), label, "package")
    check_count(len(tables), label)
    categories = {_text(table.get("category")) or _MAIN for table in tables} - {_MAIN}
    selection.check((), categories)
    chosen = selection.with_defaults({_DEV} & categories)
    platforms = {_text(table.get("platform")) for table in tables}
    if platform not in platforms:
        hint = f"it is for {listing(sorted(platforms)) or 'none'}"
        raise SpecError([Problem(f"it has no package for {platform}", label, hint=hint)])
    entries: dict[tuple[str, str], _Entry] = {}
    for table in tables:
        category = canonicalize_name(_text(table.get("category")) or _MAIN)
        if table.get("platform") != platform or category not in {_MAIN, *chosen.groups}:
            continue
        entry = _conda_lock_entry(table, label)
        entries.setdefault((_kind(entry), entry.location), entry)
    metadata = document.get("metadata")
    sources = metadata.get("sources") if isinstance(metadata, Table) else None
    names = map(_text, sources) if isinstance(sources, list) else ()
    return _Environment(
        tuple(entries.values()),
        chosen.left_out((), categories),
        f"the environment for {platform}",
        environment_requests(selection, names),
    )


def _conda_lock_entry(table: Table, label: str) -> _Entry:
    manager, location = _text(table.get("manager")), _text(table.get("url"))
    if manager not in ("conda", "pip") or not location:
        problem = "this package has no `url`, or its `manager` is neither conda nor pip"
        raise SpecError([Problem(problem, label, table.line, hint=_HINT)])
    requires = table.get("dependencies")
    requires = requires if isinstance(requires, Table) else Table()
    hashes = table.get("hash")
    return _Entry(
        table,
        location,
        manager == "conda",
        _text(table.get("name")),
        _text(table.get("version")),
        _text(table.get("build")),
        tuple(f"{name} {_text(spec)}".rstrip() for name, spec in requires.items()),
        _text(hashes.get("sha256")) if isinstance(hashes, Table) else "",
        f"{label}:{table.line}",
    )


# Packages


def file_parts(location: str) -> tuple[str, str, str] | None:
    """Return name, version and build in the name of a package's file; None for another file."""
    file = posixpath.basename(path_in(location))
    for ending in _ARCHIVES:
        parts = file.removesuffix(ending).rsplit("-", 2)
        if file.endswith(ending) and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return None


def _conda_package(entry: _Entry, label: str) -> CondaPackage:
    stated = entry.name, entry.version, entry.build
    parts = file_parts(entry.location)
    name, version, build = parts or stated
    line = entry.table.line
    for what, own, in_file in zip(
        ("name", "version", "build"), stated, parts or stated, strict=True
    ):
        if own and own != in_file:
            problem = f"its file is {what} {in_file[:80]!r}, and the lock calls it {own[:80]!r}"
            raise SpecError([Problem(problem, label, line, hint=_hint(label))])
    if not (_NAME.fullmatch(name) and _BUILD.fullmatch(build)) or (
        not _VERSION.fullmatch(version) and (parts or version)
    ):
        problem = f"{name[:80]!r} {version[:80]!r} is not a valid package of conda"
        raise SpecError([Problem(problem, label, line, hint=_hint(label))])
    purls = _list(entry.table.get("purls"), label, line)
    file = LockedFile(
        posixpath.basename(path_in(entry.location)),
        _address(entry.location),
        entry.sha256 if _SHA256.fullmatch(entry.sha256) else "",
        _size(entry.table.get("size")),
    )
    return CondaPackage(
        name=f"{CONDA_PREFIX}{name}",
        version=f"{version}+{build}" if build else version,
        index=channel_of(entry.location) if parts else None,
        wheels=(),
        source_only=False,
        via=(),
        place=entry.place,
        source="" if parts else _address(entry.location),
        file=file,
        provides=tuple({canonicalize_name(name), *filter(None, map(_python_name, purls))}),
    )


def channel_of(location: str) -> str | None:
    """Return the address of a package's channel without its scheme; None for a local file."""
    match = re.fullmatch(r"https?://(.+)/(?:[a-z0-9]+-[a-z0-9_]+|noarch)/[^/]+", location)
    return _address(f"https://{match[1]}").removeprefix("https://") if match else None


def _address(location: str) -> str:
    """Return an address without credentials; channels have tokens in paths, too (`/t/TOKEN/`)."""
    return re.sub(r"/t/[^/]+(?=/|$)", "", without_login(location))


def _python_name(purl: object) -> str:
    """Return the distribution in `pkg:pypi/numpy@1.26?source=...`; empty for any other."""
    match = re.match(r"pkg:pypi/([A-Za-z0-9][A-Za-z0-9._-]*)", _text(purl))
    return canonicalize_name(match[1]) if match else ""


def _python_package(entry: _Entry, selection: LockSelection) -> Package:
    """Read a distribution that comes from an index of Python, an address or a folder."""
    location = entry.location.removeprefix("direct+")
    line = entry.table.line
    version = selection.check_version(entry.version, entry.name, line)
    filename = posixpath.basename(path_in(location))
    sha256 = entry.sha256 if _SHA256.fullmatch(entry.sha256) else ""
    address = _address(location)
    is_wheel = filename.endswith(".whl")
    is_archive = filename.endswith((".tar.gz", ".zip", ".tar.bz2", ".tgz"))
    is_archive &= not location.startswith(("git+", "hg+", "svn+", "bzr+"))
    return Package(
        name=canonicalize_name(entry.name),
        version=version,
        index=None,
        wheels=(Wheel(filename, address, sha256),) if is_wheel else (),
        source_only=is_archive,
        via=(),
        place=entry.place,
        source="" if is_wheel or is_archive else address,
        sdist=Sdist(filename, address, sha256) if is_archive else None,
    )


def _check_names(packages: Sequence[Package], label: str) -> None:
    """Raise `SpecError` if one environment has two packages of a name."""
    first: dict[str, Package] = {}
    for package in packages:
        other = first.setdefault(package.name, package)
        if other is not package:
            name = package.name.removeprefix(CONDA_PREFIX)
            places = f"{other.place} and {package.place}"
            problem = f"one environment has two packages `{name}` ({places})"
            raise SpecError([Problem(problem, label, hint=_hint(label))])


def _unread(packages: Iterable[CondaPackage]) -> Iterator[Unread]:
    """Yield the packages that are built on installation: nothing is known of them."""
    for package in packages:
        if package.source:
            name = package.name.removeprefix(CONDA_PREFIX)
            yield Unread(package.place, f"{name} is built from {package.source}, which is no file")


# Values


def _table(value: Value, label: str, name: str) -> Table:
    if isinstance(value, Table):
        return value
    raise SpecError([Problem(f"`{name[:80]}` is not a table", label, hint=_hint(label))])


def _tables(value: Value, label: str, name: str) -> list[Table]:
    if value is None:
        return []
    tables = [item for item in value if isinstance(item, Table)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(tables) != len(value):
        raise SpecError([Problem(f"`{name}` is not a list of tables", label, hint=_hint(label))])
    return tables


def _list(value: Value, label: str, line: int) -> list[Value]:
    if value is None or isinstance(value, list):
        return value or []
    raise SpecError([Problem("this is not a list", label, line, hint=_hint(label))])


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _size(value: Value) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value) else None


def _minor(version: str) -> str:
    match = re.match(r"3\.\d{1,2}(?=\D|$)", version)
    return match[0] if match else ""
