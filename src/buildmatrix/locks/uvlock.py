"""`uv.lock`, as one target would install it.

One file holds all platforms, Pythons, extras and groups. uv documents the file as its own affair;
read from `uv-resolver/src/lock/mod.rs` and from locks of revisions 1 to 5.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.markers import BrokenMarker, holds
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.locks.projects import Project, find_project, places, reached
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import (
    address_of,
    byte_count,
    mapping,
    sha256_digits,
    string,
    strings,
    tables,
    tool_table,
)
from buildmatrix.locks.walk import InconsistentLock, LockEdge, LockEntry, LockRoot, walk
from buildmatrix.text import without_login
from buildmatrix.urls import path_in

_HINT = "run `uv lock`"
#: Kinds of source that are the user's own code.
_OWN = ("editable", "virtual", "directory")


def read(file: LockFile) -> Lock:
    """The packages that a target gets, the root projects themselves left out.

    Raises `SpecError`.
    """
    selection, document = file.selection, file.document
    if document.get("version") != 1:
        problem = f"its `version` is {document.get('version')!r}, and only 1 can be read"
        raise SpecError([Problem(problem, selection.label)])
    selection.check_python(string(document.get("requires-python")))
    entries = file.entries(
        _dependencies, lambda table: tuple(strings(table.get("resolution-markers")))
    )
    roots = roots_of(document)
    extras, groups = _names(document, roots)
    selection.check(extras, groups)
    project = find_project(*selection.beside("pyproject.toml"))
    selection = selection.with_defaults(groups & _default_groups(project, groups))
    conflicts = _conflicts(document, roots)
    if entries and not roots and not mapping(document.get("manifest")):
        problem = "it names no project, so nothing says which of its packages are installed"
        raise SpecError([Problem(problem, selection.label, hint=_HINT)])
    try:
        reached_entries = _walk(selection, document, entries, roots, conflicts)
    except (InconsistentLock, BrokenMarker) as error:
        raise SpecError([Problem(str(error), selection.label, hint=_HINT)]) from error
    return file.lock(
        (_package(entry, askers) for entry, askers in reached_entries if entry.table not in roots),
        selection.left_out(extras - _indirect(project, selection), groups, conflicts),
    )


def roots_of(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The projects that an installation starts from: the one beside the lock, else all members."""
    packages = tables(document.get("package"))
    beside = [
        item
        for item in packages
        if any(mapping(item.get("source")).get(kind) == "." for kind in _OWN)
    ]
    members = strings(mapping(document.get("manifest")).get("members"))
    return beside or [item for item in packages if item.get("name") in members]


def own_folder(root: Mapping[str, object]) -> str:
    """The folder of a project of the user's own, as seen from the lock."""
    source = mapping(root.get("source"))
    return next((string(source[kind]) for kind in _OWN if kind in source), ".")


def _walk(
    selection: LockSelection,
    document: Mapping[str, object],
    entries: Sequence[LockEntry],
    roots: Sequence[Mapping[str, object]],
    conflicts: Sequence[frozenset[str]],
) -> list[tuple[LockEntry, tuple[str, ...]]]:
    environment = selection.environment
    parts = [_parts(root, selection) for root in roots]
    for root, root_parts in zip(roots, parts, strict=True):
        _check_conflicts(selection, string(root.get("name")), root_parts, conflicts)
    # uv's names for the extras and groups of projects that exclude one another.
    chosen = {
        f"{'group' if part.startswith(':') else 'extra'}-{len(name)}-{name}-{part.lstrip(':')}"
        for root, root_parts in zip(roots, parts, strict=True)
        for name in [string(root.get("name"))]
        for part in root_parts
        if part
    } | {f"project-{len(name)}-{name}" for root in roots for name in [string(root.get("name"))]}

    def fits(marker: str | None, _: frozenset[str]) -> bool:
        return holds(marker, environment, chosen)

    def allows(edge: LockEdge, entry: LockEntry) -> bool:
        return (not edge.version or edge.version == entry.version) and (
            edge.source is None or edge.source == entry.source
        )

    place_of = {id(entry.table): entry.place for entry in entries}
    starts = [
        root_edge
        for root, root_parts in zip(roots, parts, strict=True)
        for root_edge in _edges_of_root(root, selection, root_parts, place_of[id(root)])
    ]
    manifest = mapping(document.get("manifest"))
    groups = mapping(manifest.get("dependency-groups"))
    extra = [manifest.get("requirements"), *(groups.get(name) for name in sorted(selection.groups))]
    starts += [LockRoot(selection.label, edge) for items in extra for edge in _edges(items)]
    return walk(starts, entries, fits, allows)


def _items(root: Mapping[str, object], part: str) -> list[LockEdge]:
    """What a part of a project asks for; groups have a `:` in front."""
    if not part:
        return list(_edges(root.get("dependencies")))
    key = "optional-dependencies"
    if part.startswith(":"):
        key = "dev-dependencies" if mapping(root.get("dev-dependencies")) else "dependency-groups"
    named = mapping(root.get(key)).items()
    return [
        edge
        for name, items in named
        if canonicalize_name(name) == part.lstrip(":")
        for edge in _edges(items)
    ]


def _parts(root: Mapping[str, object], selection: LockSelection) -> dict[str, str]:
    """The parts of a project that are installed, each with the part that was asked for.

    A group may ask for extras of its own project: `dev = ["acme[docs]"]`.
    """
    own = canonicalize_name(string(root.get("name")))
    requested = ["", *sorted(selection.extras), *(f":{name}" for name in sorted(selection.groups))]
    parts = {part: part for part in requested}
    queue = list(parts)
    for part in queue:  # grows while it is walked
        for edge in _items(root, part):
            if edge.name == own and holds(edge.marker, selection.environment, selection.extras):
                new = sorted(edge.extras - {*parts})
                parts.update(dict.fromkeys(new, parts[part]))
                queue += new
    return parts


def _edges_of_root(
    root: Mapping[str, object], selection: LockSelection, parts: Mapping[str, str], own_place: str
) -> Iterator[LockRoot]:
    path, label = selection.beside(
        posixpath.normpath(posixpath.join(own_folder(root), "pyproject.toml"))
    )
    own = canonicalize_name(string(root.get("name")))
    project = find_project(path, label)
    for part in parts:
        place_of = places(project, {part})
        for edge in _items(root, part):
            if edge.name != own:
                place = place_of.get(edge.name) or own_place or selection.label
                yield LockRoot(place, edge)


def _names(
    document: Mapping[str, object], roots: Sequence[Mapping[str, object]]
) -> tuple[set[str], set[str]]:
    """The extras and the groups of the projects, normalized."""
    extras: set[str] = set()
    groups: set[str] = {*mapping(mapping(document.get("manifest")).get("dependency-groups"))}
    for root in roots:
        metadata = mapping(root.get("metadata"))
        extras |= {
            *mapping(root.get("optional-dependencies")),
            *strings(metadata.get("provides-extras")),
        }
        groups |= {*mapping(root.get("dev-dependencies")), *mapping(metadata.get("requires-dev"))}
    return set(map(canonicalize_name, extras)), set(map(canonicalize_name, groups))


def _default_groups(project: Project | None, groups: Collection[str]) -> set[str]:
    """The groups that `uv sync` installs: `default-groups` of the project, else `dev`."""
    document = project.document if project is not None else {}
    declared = tool_table(document, "uv").get("default-groups", ["dev"])
    return set(groups) if declared == "all" else set(map(canonicalize_name, strings(declared)))


def _indirect(project: Project | None, selection: LockSelection) -> set[str]:
    """The extras that other extras include: locks have only what these add up to."""
    if project is None:
        return set()
    try:
        return reached(project, selection.extras | {f":{group}" for group in selection.groups})
    except SpecError:
        return set()


def _conflicts(
    document: Mapping[str, object], roots: Sequence[Mapping[str, object]]
) -> list[frozenset[str]]:
    """Parts of the projects that exclude one another, as the lock declares them."""
    names = {string(root.get("name")) for root in roots}
    conflicts = []
    declared = document.get("conflicts")
    for several in declared if isinstance(declared, list) else []:
        parts = {
            string(item.get("extra")) or f":{string(item.get('group'))}"
            for item in tables(several)
            if string(item.get("package")) in names
        }
        conflicts.append(frozenset(parts - {":"}))
    return conflicts


def _check_conflicts(
    selection: LockSelection,
    name: str,
    parts: Mapping[str, str],
    conflicts: Sequence[frozenset[str]],
) -> None:
    """Raise `SpecError` for parts that cannot be installed together, as uv does."""
    for several in conflicts:
        excluding = sorted(several & {*parts})
        if len(excluding) > 1:
            names = " and ".join(
                f"the group `{part[1:]}`" if part.startswith(":") else f"the extra `{part}`"
                for part in excluding[:2]
            )
            default = [
                part[1:]
                for part in excluding
                if part[1:] in selection.groups and part.startswith(":")
            ]
            hint = "ask for one of them"
            if default:
                hint += f"; `:-{default[0]}` leaves a default group out"
            raise SpecError(
                [Problem(f"{names} of {name} exclude each other", selection.label, hint=hint)]
            )


def _dependencies(table: Mapping[str, object]) -> Mapping[str, tuple[LockEdge, ...]]:
    dependencies = {"": tuple(_edges(table.get("dependencies")))}
    for extra, items in mapping(table.get("optional-dependencies")).items():
        dependencies[canonicalize_name(extra)] = tuple(_edges(items))
    return dependencies


def _edges(items: object) -> Iterator[LockEdge]:
    for item in tables(items):
        yield LockEdge(
            name=canonicalize_name(string(item.get("name"))),
            extras=frozenset(
                canonicalize_name(extra)
                for extra in strings(item.get("extra") or item.get("extras"))
            ),
            marker=string(item.get("marker")) or None,
            version=string(item.get("version")),
            source=item.get("source"),
        )


def _package(entry: LockEntry, askers: tuple[str, ...]) -> Package:
    source = mapping(entry.source)
    wheels = tuple(_wheels(entry.table, source, entry.place))
    return Package(
        name=entry.name,
        version=entry.version,
        index=without_login(string(source.get("registry"))) or None,
        wheels=wheels,
        source_only=not wheels,
        via=askers,
        place=entry.place,
        source="" if wheels else without_login(_origin(source)),
    )


def _wheels(
    item: Mapping[str, object], source: Mapping[str, object], place: str
) -> Iterator[Wheel]:
    """The wheels of an entry. Raises `SpecError` for an unknown kind of hash."""
    for wheel in tables(item.get("wheels")):
        address = address_of(wheel) or address_of(source)
        name = string(wheel.get("filename")) or posixpath.basename(path_in(address))
        if name.endswith(".whl"):
            hash_text = string(wheel.get("hash"))
            if hash_text.startswith("sha256:") and not sha256_digits(hash_text):
                file, _, line = place.partition(":")
                problem = f"`{name}`: its hash is not `sha256:` with 64 hex digits"
                raise SpecError([Problem(problem, file, int(line) if line else None, hint=_HINT)])
            yield Wheel(
                filename=name,
                url=without_login(address),
                sha256=sha256_digits(hash_text),
                size=byte_count(wheel.get("size")),
            )


def _origin(source: Mapping[str, object]) -> str:
    for kind in ("git", "url", "path", *_OWN):
        if kind in source:
            return ("git+" if kind == "git" else "") + string(source[kind])
    return ""
