"""One data file of the catalogue: read, and checked for errors that its types cannot express."""

from __future__ import annotations

import re
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
from buildmatrix.catalogue.model import Replacement, ReplacementAction
from buildmatrix.catalogue.tables import SCHEMA, DataFile, HostCheck, iter_entries
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
    from buildmatrix.facts.elf.search import MARKS

    for table, number, entry in iter_entries(file):
        for key in entry.source:
            if key not in file.sources:
                yield (
                    (table, number, "source"),
                    f"[[{table}]] names the source {key!r}, which is missing in [sources]",
                )
    for number, runtime in enumerate(file.static):
        for mark in runtime.marks:
            if mark not in MARKS:
                yield (
                    ("static", number, "marks"),
                    f"[[static]] names the mark {mark!r}; there are {', '.join(MARKS)}",
                )
    for number, local in enumerate(file.local_versions):
        yield from _bad_pattern(("local-versions", number, "pattern"), local.pattern)
    for number, trace in enumerate(file.source_traces):
        for pattern in trace.patterns:
            yield from _bad_pattern(("source-traces", number, "patterns"), pattern)
    for number, known in enumerate(file.distributions):
        if known.toolkit is not None:
            yield from _bad_pattern(("distributions", number, "toolkit"), known.toolkit)
        try:
            parse_specifiers(known.versions)
        except InvalidSpecifier:
            place = ("distributions", number, "versions")
            yield place, f"[[distributions]] has the versions {known.versions!r}; write `>=2.1,<3`"
    for number, variable in enumerate(file.environment):
        if variable.toolkit is not None:
            yield from _bad_pattern(("environment", number, "toolkit"), variable.toolkit)
    for number, versions in enumerate(file.runtime_versions):
        for pattern in versions.paths:
            place = ("runtime-versions", number, "paths")
            complaints = tuple(_bad_pattern(place, pattern))
            yield from complaints
            if not complaints and re.compile(pattern).groups != 1:
                yield (
                    place,
                    f"[[runtime-versions]] has {pattern!r}, which must have exactly one group",
                )
    for number, host in enumerate(file.hosts):
        for node in (*host.nodes, *host.needs):
            folder, _, last = node.rpartition("/")
            # Wildcards in folders would search whole file systems, those behind a network too.
            if not node.startswith("/") or not last or _WILDCARD.search(folder) or "**" in last:
                yield (
                    ("hosts", number, "nodes"),
                    f"[[hosts]] has the node {node!r}; write an absolute path, with wildcards "
                    "only behind the last slash, and no `**`",
                )
        yield from _bad_pattern(("hosts", number, "version"), host.version)
        yield from _bad_pattern(("hosts", number, "product"), host.product)
        for path in host.product_files:
            if not path.startswith(("/proc/", "/sys/")) or "**" in path:
                message = f"[[hosts]] has the file {path!r}; write one below /proc or /sys"
                yield ("hosts", number, "product-files"), message
    for number, check in enumerate(file.checks):
        yield from ((("checks", number, key), text) for key, text in _bad_check(check))
    for number, promise in enumerate(file.variant_features):
        for pattern, meaning in promise.values.items():
            place = ("variant-features", number, "values")
            complaints = tuple(_bad_pattern(place, pattern))
            yield from complaints
            if not complaints and not _expands(pattern, meaning):
                yield place, f"[[variant-features]] has the meaning {meaning!r} for {pattern!r}"
    for number, artifact in enumerate(file.artifacts):
        majors = (*artifact.newer_loads, *(m for row in artifact.newer_loads.values() for m in row))
        for major in majors:
            if not re.fullmatch(r"[0-9]{1,9}", major):
                message = f"[[artifacts]] has the major version {major!r}; write a number"
                yield ("artifacts", number, "newer-loads"), message
    for number, cache in enumerate(file.caches):
        for folder in cache.folders:
            if not folder.strip("/") or "**" in folder or ".." in folder.split("/"):
                message = f"[[caches]] has the folder {folder!r}; write one as `/var/cache/x`"
                yield ("caches", number, "folders"), message
    for table, number, version in _versions(file):
        if numbers(version) is None:
            message = f"[[{table}]] has the version {version!r}; write numbers such as `570.26`"
            yield (table, number), message
    for number, product in enumerate(file.products):
        if product.memory is not None and kinds.SIZE.complaint(product.memory) is not None:
            message = f"[[products]] has the memory {product.memory!r}; write one such as `80GB`"
            yield ("products", number, "memory"), message
    for table, labels in (
        ("node-labels", file.node_labels), ("node-resources", file.node_resources)
    ):  # fmt: skip
        for number, label in enumerate(labels):
            if label.pattern is not None:
                yield from _bad_pattern((table, number, "pattern"), label.pattern)
            if label.part and f"{{{label.part}}}" not in (label.form or ""):
                message = f"[[{table}]] holds part {label.part}, which its form does not have"
                yield (table, number, "part"), message
    for number, distribution in enumerate(file.distributions):
        for backend, text in distribution.replace.items():
            if replacement(text) is None:
                yield (
                    ("distributions", number, "replace", backend),
                    f"[[distributions]] has the replacement {text!r}; write `use NAME`, `remove`, "
                    "`index NAME`, `set NAME=VALUE` or `keep`, and a note behind a `;`",
                )


def _bad_check(check: HostCheck) -> Iterator[tuple[str, str]]:
    """Yield problems of a check of a machine: key and message."""
    if not _CHECK_ID.fullmatch(check.id):
        yield "id", f"[[checks]] has the id {check.id!r}; write small letters, digits and dashes"
    for key, paths in (("files", check.files), ("when", check.when)):
        for path in paths:
            if not path.startswith(("/", "{device}/")) or "**" in path or "/../" in path:
                yield key, f"[[checks]] has the file {path!r}; write an absolute path without `**`"
    if bool(check.files) == (check.reads == "log"):
        yield "files", f"[[checks]] {check.id} has to read either files or the log"
    if (check.whole is not None) != (check.over == "share"):
        yield "whole", f"[[checks]] {check.id} has `whole`, which only a share may have"
    for key, pattern in (("pattern", check.pattern), ("whole", check.whole)):
        if pattern is not None:
            complaints = [text for _, text in _bad_pattern(("checks", 0, key), pattern)]
            yield from ((key, text) for text in complaints)
            if not complaints and not re.compile(pattern).groups:
                yield key, f"[[checks]] has {pattern!r}, which must have a group"


def _versions(file: DataFile) -> Iterator[tuple[str, int, str]]:
    """Yield the versions that drivers are compared with: table, number of the entry, version."""
    for number, toolkit in enumerate(file.toolkit_drivers):
        yield from (("toolkit-drivers", number, each) for each in (toolkit.toolkit, toolkit.driver))
    for number, floor in enumerate(file.driver_floors):
        yield from (("driver-floors", number, each) for each in (floor.line, floor.driver))
    for number, pair in enumerate(file.driver_pairs):
        every = (pair.driver, *pair.runtimes, *pair.partly)
        yield from (("driver-pairs", number, each) for each in every)
    for number, kernel in enumerate(file.kernel_floors):
        yield "kernel-floors", number, kernel.kernel
    for number, code in enumerate(file.code_versions):
        every = (*code.toolkits, *code.toolkits.values())
        yield from (("code-versions", number, each) for each in every)
    for number, made in enumerate(file.framework_libraries):
        every = (*made.releases, *made.libraries.values())
        yield from (("framework-libraries", number, each) for each in every)


def _expands(pattern: str, template: str) -> bool:
    """Return True if a template names only groups that the pattern has."""
    try:
        re.sub(f"(?:{pattern})|", template, "")
    except (re.error, IndexError):
        return False
    return True


def _bad_pattern(place: Place, pattern: str) -> Iterator[tuple[Place, str]]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield (
            place,
            f"[[{place[0]}]] has the invalid regular expression {pattern!r}: {error}",
        )


@lru_cache(maxsize=1024)
def replacement(text: str) -> Replacement | None:
    """Parse `ACTION [TARGET][; NOTE]` of a data file; None if it is invalid."""
    order, _, note = text.partition(";")
    word, _, target = order.strip().partition(" ")
    action = _ACTIONS.get(word)
    if action is None or (action in ("use", "index", "set")) != bool(target):
        return None
    return Replacement(action, target or None, note.strip() or None)
