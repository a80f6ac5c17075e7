"""Packages of an environment of conda, as `conda-lock.yml` and `pixi.lock` name them.

The file of a package is what gets installed, so its name decides; a lock that says something else
of it is refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.strict import Table, Value
from buildmatrix.base.text import path_in, without_login
from buildmatrix.facts.inventory.conda import CONDA, CONDA_PREFIX
from buildmatrix.facts.inventory.model import Distribution, Unread
from buildmatrix.locks.model import CondaPackage, LockedFile, Package, Sdist, Wheel
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import is_pixi_lock

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,200}")
_VERSION = re.compile(r"[A-Za-z0-9_.!+]{1,200}")
_BUILD = re.compile(r"[A-Za-z0-9_.+]{0,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCHIVES = (".conda", ".tar.bz2")
HINT_PIXI = "write it again with `pixi lock`"
HINT = "write it again with `conda-lock lock`"


class LockedEntry(Struct, frozen=True):
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


def hint_for(label: str) -> str:
    """Return what makes a lock anew."""
    return HINT_PIXI if is_pixi_lock(label) else HINT


def file_parts(location: str) -> tuple[str, str, str] | None:
    """Return name, version and build in the name of a package's file; None for another file."""
    file = posixpath.basename(path_in(location))
    for ending in _ARCHIVES:
        parts = file.removesuffix(ending).rsplit("-", 2)
        if file.endswith(ending) and len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return None


def join_build(version: str, build: str) -> str:
    """Return the version of a package in reports: with its build, if that is known."""
    return f"{version}+{build}" if build else version


def is_conda_file(filename: str) -> bool:
    """Return True for the name of a conda package."""
    return filename.endswith(_ARCHIVES)


def make_conda_package(entry: LockedEntry, label: str) -> CondaPackage:
    """Return a package of conda. Raises `SpecError` if its file has another name than the lock."""
    stated = entry.name, entry.version, entry.build
    parts = file_parts(entry.location)
    name, version, build = parts or stated
    line = entry.table.line
    for what, own, in_file in zip(
        ("name", "version", "build"), stated, parts or stated, strict=True
    ):
        if own and own != in_file:
            problem = f"its file is {what} {in_file[:80]!r}, and the lock calls it {own[:80]!r}"
            raise SpecError([Problem(problem, label, line, hint=hint_for(label))])
    if not (_NAME.fullmatch(name) and _BUILD.fullmatch(build)) or (
        not _VERSION.fullmatch(version) and (parts or version)
    ):
        problem = f"{name[:80]!r} {version[:80]!r} is not a valid package of conda"
        raise SpecError([Problem(problem, label, line, hint=hint_for(label))])
    purls = list_of(entry.table.get("purls"), label, line)
    file = LockedFile(
        posixpath.basename(path_in(entry.location)),
        without_token(entry.location),
        entry.sha256 if _SHA256.fullmatch(entry.sha256) else "",
        _size(entry.table.get("size")),
    )
    return CondaPackage(
        name=f"{CONDA_PREFIX}{name}",
        version=join_build(version, build),
        index=channel_of(entry.location) if parts else None,
        wheels=(),
        source_only=False,
        via=(),
        place=entry.place,
        source="" if parts else without_token(entry.location),
        file=file,
        provides=tuple({canonicalize_name(name), *filter(None, map(_python_name, purls))}),
    )


def channel_of(location: str) -> str | None:
    """Return the address of a package's channel without its scheme; None for a local file."""
    match = re.fullmatch(r"https?://(.+)/(?:[a-z0-9]+-[a-z0-9_]+|noarch)/[^/]+", location)
    return without_token(f"https://{match[1]}").removeprefix("https://") if match else None


def without_token(location: str) -> str:
    """Return an address without credentials; channels have tokens in paths, too (`/t/TOKEN/`)."""
    return re.sub(r"/t/[^/]+(?=/|$)", "", without_login(location))


def _python_name(purl: object) -> str:
    """Return the distribution in `pkg:pypi/numpy@1.26?source=...`; empty for any other."""
    match = re.match(r"pkg:pypi/([A-Za-z0-9][A-Za-z0-9._-]*)", text_of(purl))
    return canonicalize_name(match[1]) if match else ""


def make_python_package(entry: LockedEntry, selection: LockSelection) -> Package:
    """Return a distribution that comes from an index of Python, an address or a folder."""
    location = entry.location.removeprefix("direct+")
    line = entry.table.line
    version = selection.check_version(entry.version, entry.name, line)
    filename = posixpath.basename(path_in(location))
    sha256 = entry.sha256 if _SHA256.fullmatch(entry.sha256) else ""
    address = without_token(location)
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


def check_names(packages: Sequence[Package], label: str) -> None:
    """Raise `SpecError` if one environment has two packages of a name."""
    first: dict[str, Package] = {}
    for package in packages:
        other = first.setdefault(package.name, package)
        if other is not package:
            name = package.name.removeprefix(CONDA_PREFIX)
            places = f"{other.place} and {package.place}"
            problem = f"one environment has two packages `{name}` ({places})"
            raise SpecError([Problem(problem, label, hint=hint_for(label))])


def find_unread(packages: Iterable[CondaPackage]) -> Iterator[Unread]:
    """Yield the packages that are built on installation: nothing is known of them."""
    for package in packages:
        if package.source:
            name = package.name.removeprefix(CONDA_PREFIX)
            yield Unread(package.place, f"{name} is built from {package.source}, which is no file")


def conda_distributions(packages: Iterable[Package]) -> tuple[Distribution, ...]:
    """Return the locked packages of conda as distributions whose files are unknown."""
    return tuple(
        Distribution(package.name, package.version, package.place, installer=CONDA)
        for package in packages
        if isinstance(package, CondaPackage)
    )


# Values


def table_of(value: Value, label: str, name: str) -> Table:
    """Return a table. Raises `SpecError`."""
    if isinstance(value, Table):
        return value
    raise SpecError([Problem(f"`{name[:80]}` is not a table", label, hint=hint_for(label))])


def tables_of(value: Value, label: str, name: str) -> list[Table]:
    """Return a list of tables, empty for none. Raises `SpecError`."""
    if value is None:
        return []
    tables = [item for item in value if isinstance(item, Table)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(tables) != len(value):
        raise SpecError([Problem(f"`{name}` is not a list of tables", label, hint=hint_for(label))])
    return tables


def list_of(value: Value, label: str, line: int) -> list[Value]:
    """Return a list, empty for none. Raises `SpecError`."""
    if value is None or isinstance(value, list):
        return value or []
    raise SpecError([Problem("this is not a list", label, line, hint=hint_for(label))])


def text_of(value: object) -> str:
    """Return a text; empty for other values."""
    return value if isinstance(value, str) else ""


def _size(value: Value) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value) else None
