"""`poetry.lock` (lock versions 1.0 to 2.x), as one target would install it.

Format: `poetry/packages/locker.py`. The lock names files and hashes, and no addresses; what the
project requires is only in the `pyproject.toml` beside it. Where that is missing, everything
that the lock says is for the asked groups counts, with no line to blame but the lock's own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks import constraints
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.markers import BrokenMarker
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.locks.projects import Project, expand, find_project, line_of_key
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import (
    mapping,
    sha256_digits,
    string,
    strings,
    tables,
    tool_table,
)
from buildmatrix.locks.walk import InconsistentLock, LockEdge, LockEntry, LockRoot, in_order, walk
from buildmatrix.parsing import requirement_or_none
from buildmatrix.text import without_login

_HINT = "run `poetry lock`"
#: Group of what a project needs to run.
_MAIN = "main"


def read(file: LockFile) -> Lock:
    """The packages that a target gets; raises `SpecError`."""
    selection, document = file.selection, file.document
    metadata = mapping(document.get("metadata"))
    version = string(metadata.get("lock-version")) or "1.0"
    if version.split(".")[0] not in ("1", "2"):
        problem = f"its `lock-version` is {version!r}, and only 1.x and 2.x can be read"
        raise SpecError([Problem(problem, selection.label)])
    entries = file.entries(_dependencies, lambda table: _forks(table.get("markers")))
    project = find_project(*selection.beside("pyproject.toml"))
    if project is not None:
        groups = {*_poetry_groups(project), *project.groups} - {_MAIN}
        selection.check(_extras(project), groups)
        selection = selection.with_defaults(groups - _optional_groups(project))
        left_out = selection.left_out(_extras(project), groups)
    else:
        named = (group for entry in entries for group in strings(entry.table.get("groups")))
        locked_groups = {*named} - {_MAIN}
        selection.check(
            mapping(document.get("extras")), locked_groups or selection.groups | selection.without
        )
        left_out = selection.left_out(mapping(document.get("extras")), locked_groups)
    try:
        reached = _reached(selection, document, entries, project)
    except (InconsistentLock, BrokenMarker) as error:
        raise SpecError([Problem(str(error), selection.label, hint=_HINT)]) from error
    files = mapping(metadata.get("files"))
    return file.lock(
        (
            _package(entry, askers, files.get(string(entry.table.get("name"))))
            for entry, askers in reached
        ),
        left_out,
    )


def _extras(project: Project) -> set[str]:
    poetry = tool_table(project.document, "poetry")
    return {*project.extras, *map(canonicalize_name, mapping(poetry.get("extras")))}


def _optional_groups(project: Project) -> set[str]:
    """The groups that `poetry install` leaves out: `optional = true`, in its own table of them."""
    poetry = tool_table(project.document, "poetry")
    return {
        canonicalize_name(name)
        for name, group in mapping(poetry.get("group")).items()
        if mapping(group).get("optional") is True
    }


def _reached(
    selection: LockSelection,
    document: Mapping[str, object],
    entries: Sequence[LockEntry],
    project: Project | None,
) -> list[tuple[LockEntry, tuple[str, ...]]]:
    def fits(marker: str | None, extras: frozenset[str]) -> bool:
        return selection.fits(marker, extras)

    def allows(edge: LockEdge, entry: LockEntry) -> bool:
        return constraints.allows(edge.allows, entry.version)

    if project is not None:
        roots = _roots(selection, project, _poetry_groups(project))
        return walk(roots, entries, fits, allows, selection.extras)
    groups = {_MAIN, *selection.groups}
    listed = _of_extras(document, selection)
    askers: dict[int, set[str]] = {}
    for number, entry in enumerate(entries):
        item = entry.table
        groups_of = strings(item.get("groups")) or [string(item.get("category")) or _MAIN]
        optional = item.get("optional") is True and entry.name not in listed
        markers = _markers(item, groups)
        if "markers" in item:
            optional = False  # Since 2.1 the markers say which extras an entry is for.
        if groups.isdisjoint(groups_of) or optional:
            continue
        if not markers or any(selection.fits(marker, selection.extras) for marker in markers):
            askers[number] = set()
    by_name: dict[str, list[int]] = {}
    for number in askers:
        by_name.setdefault(entries[number].name, []).append(number)
    for number in askers:
        for edge in entries[number].dependencies[""]:
            for required in by_name.get(edge.name, ()):
                askers[required].add(entries[number].name)
    return in_order(entries, askers)


def _of_extras(table: Mapping[str, object], selection: LockSelection) -> set[str]:
    """The distributions that a table lists for the extras which are asked for."""
    return {
        canonicalize_name(name)
        for extra, names in mapping(table.get("extras")).items()
        if canonicalize_name(extra) in selection.extras
        for name in strings(names)
    }


def _markers(item: Mapping[str, object], groups: set[str]) -> list[str]:
    markers = item.get("markers")
    if isinstance(markers, str):
        return [markers]
    return [string(text) for group, text in mapping(markers).items() if group in groups]


def _roots(
    selection: LockSelection, project: Project, groups: Mapping[str, Mapping[str, object]]
) -> Iterator[LockRoot]:
    """What the project asks for, in `[project]` and in `[tool.poetry]`."""
    poetry = tool_table(project.document, "poetry")
    for requirement in expand(
        project, {"", *selection.extras, *(f":{group}" for group in selection.groups)}
    ):
        marker = str(requirement.parsed.marker) if requirement.parsed.marker else None
        extras = frozenset(map(canonicalize_name, requirement.parsed.extras))
        edge = LockEdge(requirement.name, extras, marker, allows=str(requirement.parsed.specifier))
        yield LockRoot(project.place(requirement), edge)
    named = {requirement.name for requirement in project.requirements if not requirement.part}
    listed = _of_extras(poetry, selection)
    for group, dependencies in groups.items():
        if group != _MAIN and group not in selection.groups:
            continue
        table = "tool.poetry.dependencies" if group == _MAIN else f"tool.poetry.group.{group}"
        for name, value in dependencies.items():
            key = canonicalize_name(name)
            # Beside `[project]`, the table only says where its distributions come from.
            if key == "python" or (group == _MAIN and key in named):
                continue
            for edge, optional in _edges(name, value):
                if not optional or key in listed:
                    place = f"{project.label}:{line_of_key(project.text, name, table)}"
                    yield LockRoot(place, edge)


def _poetry_groups(project: Project) -> dict[str, Mapping[str, object]]:
    poetry = tool_table(project.document, "poetry")
    groups = {_MAIN: mapping(poetry.get("dependencies"))}
    if "dev-dependencies" in poetry:
        groups["dev"] = mapping(poetry["dev-dependencies"])
    for name, group in mapping(poetry.get("group")).items():
        groups[canonicalize_name(name)] = mapping(mapping(group).get("dependencies"))
    return groups


def _dependencies(item: Mapping[str, object]) -> Mapping[str, tuple[LockEdge, ...]]:
    edges = [
        edge
        for name, value in mapping(item.get("dependencies")).items()
        for edge, optional in _edges(name, value)
        # Without a marker that says for which extra, the table of extras does.
        if not optional or edge.marker
    ]
    dependencies = {"": tuple(edges)}
    for extra, names in mapping(item.get("extras")).items():
        dependencies[canonicalize_name(extra)] = tuple(_extra_edges(names, item))
    return dependencies


def _forks(markers: object) -> tuple[str, ...]:
    """The marker of an entry, or those of its groups where they differ."""
    if isinstance(markers, str):
        return (markers,)
    return tuple(text for text in mapping(markers).values() if isinstance(text, str))


def _extra_edges(names: object, item: Mapping[str, object]) -> Iterator[LockEdge]:
    """The dependencies of an extra that the lock holds: those that are listed as dependencies."""
    held = {canonicalize_name(name) for name in mapping(item.get("dependencies"))}
    for text in strings(names):
        # `trio (>=0.32.0)` is the older way to write a requirement, which PEP 508 allows.
        requirement = requirement_or_none(text)
        if requirement and (name := canonicalize_name(requirement.name)) in held:
            marker = str(requirement.marker) if requirement.marker else None
            extras = frozenset(map(canonicalize_name, requirement.extras))
            yield LockEdge(name, extras, marker, allows=str(requirement.specifier))


def _edges(name: str, value: object) -> Iterator[tuple[LockEdge, bool]]:
    """The edges of one key of a table of dependencies, each with whether it is optional."""
    for item in value if isinstance(value, list) else [value]:
        table = mapping(item)
        marker = string(table.get("markers")) or None
        python = string(table.get("python"))
        if python and (condition := constraints.marker(python)):
            marker = f"({marker}) and ({condition})" if marker else condition
        extras = frozenset(map(canonicalize_name, strings(table.get("extras"))))
        allowed = item if isinstance(item, str) else string(table.get("version"))
        edge = LockEdge(canonicalize_name(name), extras, marker, allows=allowed)
        yield edge, table.get("optional") is True


def _package(entry: LockEntry, askers: tuple[str, ...], old: object) -> Package:
    source = mapping(entry.source)
    kind, url = string(source.get("type")), string(source.get("url"))
    named = entry.table.get("files", old)
    files = [
        (string(file.get("file")), sha256_digits(string(file.get("hash"))))
        for file in tables(named)
    ]
    wheels = tuple(
        Wheel(
            filename=name,
            url=url if kind in ("url", "file") and posixpath.basename(url) == name else "",
            sha256=digest,
        )
        for name, digest in files
        if name.endswith(".whl") and "/" not in name
    )
    reference = string(source.get("resolved_reference")) or string(source.get("reference"))
    origin = {
        "git": f"git+{url}@{reference}",
        "url": url,
        "file": url,
        "directory": url,
    }.get(kind, "")
    return Package(
        name=entry.name,
        version=entry.version,
        index=without_login(url) if kind == "legacy" else None,
        wheels=wheels,
        source_only=not wheels,
        via=askers,
        place=entry.place,
        source="" if wheels else without_login(origin),
    )
