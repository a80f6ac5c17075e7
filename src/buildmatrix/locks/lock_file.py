"""A lock of another tool: its entries, its state, and the command in its header."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.strict import parse_json
from buildmatrix.base.toml import mapping, string, tables
from buildmatrix.locks.lines import check_count, decode, load_toml, read_bytes, table_lines
from buildmatrix.locks.model import LeftOut, Lock, Package
from buildmatrix.locks.projects import find_project, places, read_project
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.selection import LockSelection

# Entries, of all platforms and extras, and their edges


class LockEdge(Struct, frozen=True):
    """One dependency of an entry on another."""

    #: Normalized name.
    name: str
    extras: frozenset[str] = frozenset()
    marker: str | None = None
    #: Version and source of the dependency, if a lock has several entries of one name.
    version: str = ""
    source: object = None
    #: Allowed range of versions, in the syntax of the lock's tool.
    allows: str = ""


class LockEntry(Struct, frozen=True):
    """One entry of a lock."""

    name: str
    version: str
    #: As in the lock.
    table: Mapping[str, object]
    #: `file:line`; empty if unknown.
    place: str
    #: Extra → its requirements; the empty name for those without an extra.
    dependencies: Mapping[str, tuple[LockEdge, ...]]
    #: Markers, one of which must hold for the entry to apply; without any, it always applies.
    forks: tuple[str, ...] = ()

    @property
    def source(self) -> object:
        """Source of its files, in the terms of the lock's tool."""
        return self.table.get("source")


class InconsistentLock(ValueError):
    """A lock contradicts itself; the message says where."""


# The file, read once, for its content and its state


class LockFile(Struct, frozen=True):
    """Content of a lock, and the selection from it."""

    selection: LockSelection
    text: str
    document: Mapping[str, object]
    #: `sha256:<hex>` of its bytes.
    digest: str

    @property
    def label(self) -> str:
        """Name of the file in messages."""
        return self.selection.label

    def entries(
        self,
        dependencies: Callable[[Mapping[str, object]], Mapping[str, tuple[LockEdge, ...]]],
        forks: Callable[[Mapping[str, object]], tuple[str, ...]],
        key: str = "package",
    ) -> list[LockEntry]:
        """Return the tables `[[package]]`; the functions read parts that differ by tool."""
        packages = tables(self.document.get(key))
        check_count(len(packages), self.label)
        entries = []
        for table, line in zip(packages, table_lines(self.text, key, len(packages)), strict=True):
            name = string(table.get("name"))
            version = self.selection.check_version(string(table.get("version")), name, line)
            place = f"{self.label}:{line}" if line else ""
            further = dependencies(table), forks(table)
            entries.append(LockEntry(canonicalize_name(name), version, table, place, *further))
        return entries

    def lock(self, packages: Iterable[Package], left_out: LeftOut) -> Lock:
        """Return the lock with `packages`."""
        return Lock(self.selection.path, tuple(packages), "", self.digest, left_out)


def open_lock(selection: LockSelection, tool: str) -> LockFile:
    """Read the lock `selection.path` of the command `tool`; raises `SpecError`."""
    hint = f"run `{tool}`" if tool else None
    data = read_bytes(selection.path, selection.label, hint)
    is_json = selection.path.name == "Pipfile.lock"
    return LockFile(selection, *_read_document(data, selection.label, hint, is_json))


# Targets read parts of one lock.
@lru_cache(maxsize=1)
def _read_document(
    data: bytes, label: str, hint: str | None, is_json: bool
) -> tuple[str, Mapping[str, object], str]:
    """Return the text of a lock, its content, and the digest of its bytes."""
    text = decode(data, label)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    if not is_json:
        return text, load_toml(text, label, hint), digest
    try:
        return text, mapping(parse_json(text)), digest
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise SpecError([Problem(problem, label, error.lineno, error.colno, hint)]) from error


# Commands in headers. uv, pip-compile and PDM write them, in pinned requirements and in a
# `pylock.toml`. A lock without one counts as that of the project beside it.


_COMMAND = re.compile(
    r"#\s+(uv pip compile|uv export|pip-compile|python -m piptools compile)\b(.*)"
)
#: Options without a value; every other option may be followed by one.
_ALONE = re.compile(
    r"--(no-[a-z-]+|generate-hashes|upgrade|strip-extras|allow-unsafe|all-extras|all-groups"
    r"|all-packages|universal|quiet|verbose|emit-[a-z-]+|annotate|header|pre|rebuild|resolver=\S+"
    r"|locked|frozen|offline|only-dev|dev|.*=.*)|-[qvUn]+"
)
#: Lines at the beginning of a file to search for the command.
_HEADER = 20
#: Folders above a lock to search for its inputs.
_ABOVE = 4


class LockCommand(Struct, frozen=True):
    """Inputs of a lock."""

    #: Relative to the folder in which the tool ran.
    files: tuple[str, ...]
    #: Parts of a project (`ProjectRequirement.part`); empty if the command does not name them.
    parts: frozenset[str] = frozenset()


def command_of(text: str) -> LockCommand | None:
    """Return the command in the header of a file, or None."""
    for line in text.split("\n", _HEADER)[:_HEADER]:
        match = _COMMAND.match(line)
        if match is None:
            continue
        try:
            words = shlex.split(match[2])
        except ValueError:
            return None
        files, options = _parse_words(words)
        if match[1] == "uv export":
            return LockCommand(("pyproject.toml",), _parse_parts(options))
        return LockCommand(tuple(files) or ("requirements.in",), _parse_parts(options))
    return None


def _parse_words(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Split a command line into files, and options with their values."""
    files: list[str] = []
    options: list[tuple[str, str]] = []
    expects_value = False
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            options.append((name, value))
            expects_value = _ALONE.fullmatch(word) is None
        elif expects_value:
            options[-1] = options[-1][0], word
            expects_value = False
        else:
            files.append(word)
    return files, options


def _parse_parts(options: list[tuple[str, str]]) -> frozenset[str]:
    if any(name in ("--all-extras", "--all-groups") for name, _ in options):
        return frozenset()
    extras = {canonicalize_name(value) for name, value in options if name == "--extra"}
    groups = {
        canonicalize_name(value) for name, value in options if name in ("--group", "--only-group")
    }
    return frozenset({"", *extras, *(f":{name}" for name in groups)})


class CommandInputs:
    """Lines of a lock's input files, each file read once."""

    def __init__(self, selection: LockSelection, command: LockCommand | None) -> None:
        self._selection = selection
        self._command = command
        self._labels_and_places: dict[str, tuple[str, Mapping[str, str]]] = {}

    @cached_property
    def project(self) -> str:
        """Normalized name of the project beside the lock; empty for none."""
        location = input_file(self._selection, "pyproject.toml")
        project = find_project(*location) if location is not None else None
        return project.name if project is not None else ""

    def place(self, file: str, name: str) -> str:
        """Return `file:line` of a distribution's requirement; the file alone without a line."""
        label, places = self._read_file(file)
        return places.get(name, label)

    def places(self, name: str) -> set[str]:
        """Return `file:line` of requirements of a distribution, in all inputs."""
        files = self._command.files if self._command is not None else ("pyproject.toml",)
        candidates = (self._read_file(file)[1].get(name) for file in files)
        return {place for place in candidates if place is not None}

    def _read_file(self, file: str) -> tuple[str, Mapping[str, str]]:
        if file not in self._labels_and_places:
            self._labels_and_places[file] = self._read(file)
        return self._labels_and_places[file]

    def _read(self, file: str) -> tuple[str, Mapping[str, str]]:
        """Return the name of a file, and name → `file:line`."""
        location = input_file(self._selection, file)
        if location is None:
            return file, {}
        path, label = location
        try:
            if path.name == "pyproject.toml":
                return label, self._map_project_lines(path, label)
            lines = read_requirements(path, label).lines
        except SpecError:
            return label, {}
        return label, {line.name: str(line) for line in reversed(lines)}

    def _map_project_lines(self, path: Path, label: str) -> Mapping[str, str]:
        project = read_project(path, label)
        parts = self._command.parts if self._command is not None else frozenset[str]()
        all_parts = {"", *project.extras, *(f":{name}" for name in project.groups)}
        # Requirements without an extra come first, if an extra has the same.
        return {**places(project, parts or all_parts), **places(project, {""})}


def input_file(selection: LockSelection, file: str) -> tuple[Path, str] | None:
    """Return an input of a lock, and its name in messages; None if it is missing.

    Tools write the path relative to the folder in which they ran: beside the lock or above it.
    """
    for above in range(_ABOVE):
        path, label = selection.beside("../" * above + file)
        if path.is_file():
            return path, posixpath.normpath(label)
    return None
