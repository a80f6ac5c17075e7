"""One data file of the catalogue: read, and checked for errors that its types cannot express."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec
from packaging.specifiers import InvalidSpecifier

from buildmatrix.base import toml
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue import entries, tables
from buildmatrix.catalogue.entries import CatalogueEntry
from buildmatrix.catalogue.model import Replacement, ReplacementAction
from buildmatrix.catalogue.tables import SCHEMA, DataFile, iter_entries
from buildmatrix.matrix import document, kinds
from buildmatrix.matrix.document import KeyPath as Place
from buildmatrix.matrix.document import Problems
from buildmatrix.matrix.kinds import numbers
from buildmatrix.matrix.model import Position

_Locate = Callable[[Place], Position | None]

_ACTIONS: Mapping[str, ReplacementAction] = {
    "use": "use",
    "remove": "remove",
    "index": "index",
    "keep": "keep",
    "set": "set",
}
#: One step of a path in a message of msgspec: `.libraries`, `[0]`; `[...]` is any key of a table.
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
_CHECK_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WILDCARD = re.compile(r"[*?\[]")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]+)`")
_FORMAT = "docs/catalogue.md lists what each table may hold"


def read(name: str, data: bytes, *, is_own: bool = False) -> DataFile:
    """Read a data file; `name` is its name in errors. Raises `SpecError`.

    Those of buildmatrix itself are checked by tests, for types alone here: to check their patterns
    took a fifth of the time that `targets` needs.
    """
    try:
        content = toml.loads(data.decode())
    except (toml.TomlError, UnicodeDecodeError) as error:
        raise SpecError([Problem(f"this is not TOML: {error}", name)]) from error
    return _check(content, Problems(name), lambda _: None, is_own=is_own)


def read_file(path: Path) -> DataFile:
    """Read a data file of a user. Raises `SpecError` with the line of every problem."""
    problems = Problems(str(path))
    parsed = document.read(path, problems, absent="docs/catalogue.md shows how to write one")

    def locate(place: Place) -> Position | None:
        """Return the position of the entry at `place`, or of the nearest one around it."""
        for end in range(len(place), 0, -1):
            with suppress(KeyError):
                return parsed.key(place[:end])
        return None

    return _check(parsed.values, problems, locate)


def _check(
    content: Mapping[str, object], problems: Problems, locate: _Locate, *, is_own: bool = False
) -> DataFile:
    if content.get("schema") != SCHEMA:
        problems.add(locate(("schema",)), f"`schema` must be {SCHEMA}", _FORMAT)
        problems.stop()
    try:
        file = msgspec.convert(content, prepare_type(DataFile))
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`").lstrip(".")
        place = tuple(name or int(index) for name, index in _STEP.findall(f".{where}"))
        unknown = _UNKNOWN_FIELD.search(text)
        if unknown is not None:
            place = (*place, unknown[1])
        message = f"{where}: {text}" if where else text
        problems.add(locate(place), message, _FORMAT)
    else:
        for place, message in () if is_own else _complaints(file):
            problems.add(locate(place), message)
        problems.stop()
        return file
    problems.stop()
    raise AssertionError("a problem was just added")


def _complaints(file: DataFile) -> Iterator[tuple[Place, str]]:
    """Yield the problems that types cannot express, each with the path of the entry."""
    for table, number, entry in iter_entries(file):
        place = (table, number)
        for key in entry.source:
            if key not in file.sources:
                message = f"names the source {key!r}, which is missing in [sources]"
                yield (*place, "source"), f"[[{table}]] {message}"
        for field, message in _entry_complaints(entry):
            yield (*place, *field), f"[[{table}]] {message}"


def _entry_complaints(entry: CatalogueEntry) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield field and message of each problem of an entry."""
    for key, pattern, groups in _patterns(entry):
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            yield (key,), f"has the invalid regular expression {pattern!r}: {error}"
            continue
        if groups is not None and compiled.groups not in groups:
            wanted = "exactly one group" if len(groups) == 1 else "a group"
            yield (key,), f"has {pattern!r}, which must have {wanted}"
    for version in _versions(entry):
        if numbers(version) is None:
            yield (), f"has the version {version!r}; write numbers such as `570.26`"
    match entry:
        case entries.Static():
            from buildmatrix.facts.elf.search import MARKS

            for mark in entry.marks:
                if mark not in MARKS:
                    yield ("marks",), f"names the mark {mark!r}; there are {', '.join(MARKS)}"
        case entries.DistributionEntry():
            try:
                parse_specifiers(entry.versions)
            except InvalidSpecifier:
                yield ("versions",), f"has the versions {entry.versions!r}; write `>=2.1,<3`"
            for backend, text in entry.replace.items():
                if replacement(text) is None:
                    yield (
                        ("replace", backend),
                        f"has the replacement {text!r}; write `use NAME`, `remove`, "
                        "`index NAME`, `set NAME=VALUE` or `keep`, and a note behind a `;`",
                    )
        case entries.ArtifactEntry():
            rows = entry.newer_loads.values()
            for major in (*entry.newer_loads, *(major for row in rows for major in row)):
                if not re.fullmatch(r"[0-9]{1,9}", major):
                    yield ("newer-loads",), f"has the major version {major!r}; write a number"
        case entries.CacheEntry():
            for folder in entry.folders:
                if not folder.strip("/") or "**" in folder or ".." in folder.split("/"):
                    yield ("folders",), f"has the folder {folder!r}; write one as `/var/cache/x`"
        case tables.Host():
            for node in (*entry.nodes, *entry.needs):
                folder, _, last = node.rpartition("/")
                # Wildcards in folders would search whole file systems, also behind a network.
                if not node.startswith("/") or not last or _WILDCARD.search(folder) or "**" in last:
                    yield (
                        ("nodes",),
                        f"has the node {node!r}; write an absolute path, with wildcards "
                        "only behind the last slash, and no `**`",
                    )
            for path in entry.product_files:
                if not path.startswith(("/proc/", "/sys/")) or "**" in path:
                    message = f"has the file {path!r}; write one below /proc or /sys"
                    yield ("product-files",), message
        case tables.HostCheck():
            yield from (((key,), message) for key, message in _bad_check(entry))
        case tables.VariantFeature():
            for pattern, meaning in entry.values.items():
                if not _expands(pattern, meaning):
                    yield ("values",), f"has the meaning {meaning!r} for {pattern!r}"
        case tables.Product():
            if entry.memory is not None and kinds.SIZE.complaint(entry.memory) is not None:
                yield ("memory",), f"has the memory {entry.memory!r}; write one such as `80GB`"
        case tables.NodeLabel():
            if entry.part and f"{{{entry.part}}}" not in (entry.form or ""):
                yield ("part",), f"holds part {entry.part}, which its form does not have"


def _bad_check(check: tables.HostCheck) -> Iterator[tuple[str, str]]:
    """Yield problems of a check of a machine: key and message."""
    if not _CHECK_ID.fullmatch(check.id):
        yield "id", f"has the id {check.id!r}; write small letters, digits and dashes"
    for key, paths in (("files", check.files), ("when", check.when)):
        for path in paths:
            if not path.startswith(("/", "{device}/")) or "**" in path or "/../" in path:
                yield key, f"has the file {path!r}; write an absolute path without `**`"
    if bool(check.files) == (check.reads == "log"):
        yield "files", f"{check.id} has to read either files or the log"
    if (check.whole is not None) != (check.over == "share"):
        yield "whole", f"{check.id} has `whole`, which only a share may have"


#: Numbers of groups of a pattern of which one group is read.
_ONE, _ANY = range(1, 2), range(1, sys.maxsize)


def _patterns(entry: CatalogueEntry) -> Iterator[tuple[str, str, range | None]]:
    """Yield the regular expressions of an entry: key, pattern, and numbers of groups."""
    match entry:
        case entries.LocalVersion():
            yield "pattern", entry.pattern, None
        case entries.SourceTrace():
            yield from (("patterns", pattern, None) for pattern in entry.patterns)
        case entries.DistributionEntry() | entries.EnvironmentEntry():
            yield "toolkit", entry.toolkit or "", None
        case tables.RuntimeVersion():
            yield from (("paths", pattern, _ONE) for pattern in entry.paths)
        case tables.Host():
            yield "version", entry.version, None
            yield "product", entry.product, None
        case tables.HostCheck():
            yield "pattern", entry.pattern, _ANY
            if entry.whole is not None:
                yield "whole", entry.whole, _ANY
        case tables.VariantFeature():
            yield from (("values", pattern, None) for pattern in entry.values)
        case tables.NodeLabel():
            yield "pattern", entry.pattern or "", None


def _versions(entry: CatalogueEntry) -> tuple[str, ...]:
    """Return the versions that drivers are compared with."""
    match entry:
        case tables.ToolkitDriver():
            return entry.toolkit, entry.driver
        case tables.DriverFloor():
            return entry.line, entry.driver
        case tables.DriverPair():
            return (entry.driver, *entry.runtimes, *entry.partly)
        case tables.KernelFloor():
            return (entry.kernel,)
        case tables.CodeVersion():
            return (*entry.toolkits, *entry.toolkits.values())
        case tables.FrameworkLibraries():
            return (*entry.releases, *entry.libraries.values())
    return ()


def _expands(pattern: str, template: str) -> bool:
    """Return True if a template names only groups that the pattern has."""
    try:
        compiled = re.compile(f"(?:{pattern})|")
    except re.error:
        return True  # which is a problem of its own
    try:
        compiled.sub(template, "")
    except (re.error, IndexError):
        return False
    return True


@lru_cache(maxsize=1024)
def replacement(text: str) -> Replacement | None:
    """Parse `ACTION [TARGET][; NOTE]` of a data file; None if it is invalid."""
    order, _, note = text.partition(";")
    word, _, target = order.strip().partition(" ")
    action = _ACTIONS.get(word)
    if action is None or (action in ("use", "index", "set")) != bool(target):
        return None
    return Replacement(action, target or None, note.strip() or None)
