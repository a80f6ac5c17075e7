"""Data files -> one catalogue, indexed for look-ups by name.

The files that come with buildmatrix lie in `data/`. Several files may speak of one backend: the
entries of all of them count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec
import tomli

from buildmatrix.catalogue import format as tables
from buildmatrix.catalogue.model import (
    BackendEntry,
    Confidence,
    IndexRoute,
    Replacement,
    ReplacementAction,
)
from buildmatrix.catalogue.names import GlobIndex, library_patterns
from buildmatrix.errors import Problem, SpecError

EntryT = TypeVar("EntryT", bound=tables.Entry)
EntryT_co = TypeVar("EntryT_co", bound=tables.Entry, covariant=True)

#: How sure an entry is, by how it is known.
CONFIDENCE: Mapping[tables.Basis, Confidence] = {
    "verified": "high",
    "documented": "high",
    "inferred": "medium",
    "memory": "low",
}

_ACTIONS: Mapping[str, ReplacementAction] = {
    "use": "use",
    "remove": "remove",
    "index": "index",
    "keep": "keep",
}


@dataclass(frozen=True, slots=True)
class Owned(Generic[EntryT_co]):
    """An entry, and whose it is."""

    entry: EntryT_co
    backend: str
    vendor: str | None
    #: The glob of the entry that this stands for in an index.
    glob: str

    @property
    def confidence(self) -> Confidence:
        """How sure the entry is."""
        return CONFIDENCE[self.entry.basis]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that the data files say."""

    #: Date of the newest file, `YYYY-MM-DD`.
    date: str
    backends: Mapping[str, BackendEntry]
    libraries: GlobIndex[Owned[tables.Library]]
    distributions: GlobIndex[Owned[tables.Distribution]]
    local_versions: Sequence[Owned[tables.LocalVersion]]
    system_packages: GlobIndex[Owned[tables.SystemPackage]]
    roots: GlobIndex[Owned[tables.Root]]
    environment: GlobIndex[Owned[tables.Environment]]
    images: GlobIndex[Owned[tables.Image]]
    sections: GlobIndex[Owned[tables.Section]]
    device_code: Sequence[Owned[tables.DeviceCode]]
    static: Sequence[Owned[tables.Static]]
    tools: GlobIndex[Owned[tables.Tool]]
    artefacts: GlobIndex[Owned[tables.Artefact]]
    exceptions: Sequence[Owned[tables.ExceptionRule]]


def load(extra: Sequence[Path] = ()) -> Catalogue:
    """The catalogue of buildmatrix, and the user's own data files with it.

    Read once per process. A file that is missing or broken raises `SpecError`, which names it.
    """
    return _load(tuple(extra))


@lru_cache(maxsize=8)
def _load(extra: tuple[Path, ...]) -> Catalogue:
    own = resources.files("buildmatrix.catalogue") / "data"
    files = {
        item.name: read(item.name, item.read_bytes())
        for item in sorted(own.iterdir(), key=lambda item: item.name)
        if item.name.endswith(".toml")
    }
    for path in extra:
        try:
            data = path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise _broken(str(path), f"the catalogue file cannot be read: {reason}") from error
        files[str(path)] = read(str(path), data)
    return catalogue(files)


def read(name: str, data: bytes) -> tables.DataFile:
    """One data file; `name` is what errors call it. Raises `SpecError` for everything wrong."""
    try:
        content = tomli.loads(data.decode())
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _broken(name, f"this is no TOML: {error}") from error
    if content.get("schema") != tables.SCHEMA:
        raise _broken(name, f"`schema` must be {tables.SCHEMA}", "see docs/catalogue.md")
    try:
        file = msgspec.convert(content, tables.DataFile)
    except msgspec.ValidationError as error:
        raise _broken(
            name, str(error), "docs/catalogue.md lists what each table may hold"
        ) from error
    problems = [Problem(message, name) for message in _problems(file)]
    if problems:
        raise SpecError(problems)
    return file


def _broken(file: str, message: str, hint: str | None = None) -> SpecError:
    return SpecError([Problem(message, file, hint=hint)])


def _entries(file: tables.DataFile) -> Iterator[tuple[str, tables.Entry]]:
    for field in msgspec.structs.fields(file):
        value = getattr(file, field.name)
        if isinstance(value, tuple):
            for entry in value:
                if isinstance(entry, tables.Entry):
                    yield field.encode_name, entry


def _problems(file: tables.DataFile) -> Iterator[str]:
    """What the types of the format cannot say."""
    for table, entry in _entries(file):
        for key in entry.source:
            if key not in file.sources:
                yield f"[[{table}]] names the source {key!r}, which [sources] does not have"
    for local in file.local_versions:
        yield from _bad_pattern("local-versions", local.pattern)
    for variable in file.environment:
        if variable.toolkit is not None:
            yield from _bad_pattern("environment", variable.toolkit)
    for distribution in file.distributions:
        for text in distribution.replace.values():
            if replacement(text) is None:
                yield (
                    f"[[distributions]] has the replacement {text!r}; write `use NAME`, `remove`, "
                    "`index NAME` or `keep`, and behind a `;` what else is to be said"
                )


def _bad_pattern(table: str, pattern: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f"[[{table}]] has the regular expression {pattern!r}, which is none: {error}"


@lru_cache(maxsize=1024)
def replacement(text: str) -> Replacement | None:
    """The replacement that a data file writes as `ACTION [TARGET][; NOTE]`; None if it is none."""
    order, _, note = text.partition(";")
    word, _, target = order.strip().partition(" ")
    action = _ACTIONS.get(word)
    if action is None or (action in ("use", "index")) != bool(target):
        return None
    return Replacement(action, target or None, note.strip() or None)


def catalogue(named: Mapping[str, tables.DataFile]) -> Catalogue:
    """The catalogue that these files, by name, make together; at least one."""
    files = tuple(named.values())
    return Catalogue(
        date=max(file.checked for file in files).isoformat(),
        backends=_backends(named),
        libraries=_index(files, lambda file: file.libraries, _names, library_patterns),
        distributions=_index(files, lambda file: file.distributions, _names, _without_local),
        local_versions=_sequence(files, lambda file: file.local_versions),
        system_packages=_index(files, lambda file: file.system_packages, _names),
        roots=_index(files, lambda file: file.roots, lambda entry: entry.paths),
        environment=_index(files, lambda file: file.environment, _names),
        images=_index(files, lambda file: file.images, _names),
        sections=_index(files, lambda file: file.sections, _names),
        device_code=_sequence(files, lambda file: file.device_code),
        static=_sequence(files, lambda file: file.static),
        tools=_index(files, lambda file: file.tools, _names),
        artefacts=_index(files, lambda file: file.artefacts, lambda entry: entry.kinds),
        exceptions=_sequence(files, lambda file: file.exceptions),
    )


class _Named(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...


def _names(entry: _Named) -> tuple[str, ...]:
    return entry.names


def _without_local(glob: str) -> tuple[str]:
    return (glob.partition("+")[0],)


def _unchanged(glob: str) -> tuple[str]:
    return (glob,)


def _sequence(
    files: Iterable[tables.DataFile], table: Callable[[tables.DataFile], Iterable[EntryT]]
) -> tuple[Owned[EntryT], ...]:
    return tuple(
        Owned(entry, file.backend, file.vendor, "") for file in files for entry in table(file)
    )


def _index(
    files: Iterable[tables.DataFile],
    table: Callable[[tables.DataFile], Iterable[EntryT]],
    globs: Callable[[EntryT], Iterable[str]],
    keys: Callable[[str], Iterable[str]] = _unchanged,
) -> GlobIndex[Owned[EntryT]]:
    return GlobIndex(
        (key, Owned(entry, file.backend, file.vendor, glob))
        for file in files
        for entry in table(file)
        for glob in globs(entry)
        for key in keys(glob)
    )


def _backends(files: Mapping[str, tables.DataFile]) -> Mapping[str, BackendEntry]:
    """One entry per backend. Its first file names it; the others may only add to it."""
    backends: dict[str, BackendEntry] = {}
    for name, file in files.items():
        known = backends.get(file.backend)
        if known is None:
            known = BackendEntry(file.backend, file.vendor, file.title)
        elif known.vendor != file.vendor:
            raise _broken(
                name,
                f"the backend {file.backend!r} belongs to {known.vendor!r} in another data file, "
                f"and to {file.vendor!r} here",
            )
        backends[file.backend] = replace(
            known,
            aliases=(*known.aliases, *(name for name in file.aliases if name != file.backend)),
            indexes=(*known.indexes, *_routes(file)),
            images=tuple(
                dict.fromkeys(
                    (*known.images, *(name for image in file.images for name in image.names))
                )
            ),
        )
    return backends


def _routes(file: tables.DataFile) -> Iterator[IndexRoute]:
    for entry in file.indexes:
        for name, toolkit in entry.routes.items():
            yield IndexRoute(entry.family, name, toolkit or None)
