"""`uv.lock`, as one target would install it.

One file has all platforms, Pythons, extras and groups. uv does not document the format; source:
`uv-resolver/src/lock/mod.rs`, and locks of revisions 1 to 5.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.text import path_in, without_login
from buildmatrix.base.toml import mapping, string, strings, tables, tool_table
from buildmatrix.locks.lines import address_of, byte_count, sha256_digits
from buildmatrix.locks.lock_file import InconsistentLock, LockEdge, LockEntry, LockFile
from buildmatrix.locks.model import Lock, Package, Sdist, Wheel
from buildmatrix.locks.projects import Project, find_project, places, reachable_parts
from buildmatrix.locks.selection import BrokenMarker, LockSelection, marker_holds

_HINT = "run `uv lock`"
#: Kinds of source for the user's own code.
_OWN = ("editable", "virtual", "directory")
#: Maximum dependencies to follow; the largest real locks have some 5000.
_MOST_STEPS = 500_000


def read(file: LockFile) -> Lock:
    """Return the packages of a target, without its root projects and virtual ones.

    Raises `SpecError`.
    """
    selection, document = file.selection, file.document
    if document.get("version") != 1:
        problem = f"its `version` is {document.get('version')!r}, and only 1 can be read"
        raise SpecError([Problem(problem, selection.label)])
    selection.check_python(string(document.get("requires-python")))
    entries = file.entries(
        _read_dependencies,
        lambda table: tuple(strings(table.get("resolution-markers"))),
        _key_of_packages(document),
    )
    roots = roots_of(document)
    extras, groups = _collect_names(document, roots)
    selection.check(extras, groups)
    project = find_project(*selection.beside("pyproject.toml"))
    settings = tool_table(project.document if project is not None else {}, "uv")
    # `uv sync` installs these.
    default = settings.get("default-groups", ["dev"])
    names = groups if default == "all" else set(map(canonicalize_name, strings(default)))
    selection = selection.with_defaults(groups & names)
    for root in roots:
        pythons = mapping(root.get("group-requires-python"))
        for name in sorted(selection.groups & {*pythons}):
            selection.check_python(string(pythons[name]), f"the group `{name}`")
    conflicts = _conflicts(document)
    if entries and not roots and not mapping(document.get("manifest")):
        problem = "it names no project, so the installed packages are unknown"
        raise SpecError([Problem(problem, selection.label, hint=_HINT)])
    try:
        selection.check_environment(
            strings(document.get("supported-markers")),
            "supported-markers",
            "add it to `environments` of `[tool.uv]` in pyproject.toml, and run `uv lock`",
        )
        walk = _Walk(selection, document, entries, roots, conflicts)
        walk.check_requested()
        reached_entries = walk.run()
    except (InconsistentLock, BrokenMarker) as error:
        raise SpecError([Problem(str(error), selection.label, hint=_HINT)]) from error
    names = {string(root.get("name")) for root in roots}
    lock = file.lock(
        (
            _make_package(entry, askers)
            for entry, askers in reached_entries
            if entry.table not in roots and not _is_virtual(entry.table)
        ),
        selection.left_out(
            extras - _find_indirect(project, selection),
            groups,
            [{item.part for item in several if item.package in names} for several in conflicts],
        ),
    )
    return replace(lock, decided=_find_decided(document, roots))


def _is_virtual(table: Mapping[str, object]) -> bool:
    """Return True for a project whose requirements are installed, and not the project itself."""
    return "virtual" in mapping(table.get("source"))


def _find_decided(
    document: Mapping[str, object], roots: Sequence[Mapping[str, object]]
) -> frozenset[str]:
    """Return the projects of the lock, and names it decides, whatever wheels require."""
    manifest = mapping(document.get("manifest"))
    virtual = [*filter(_is_virtual, tables(document.get(_key_of_packages(document))))]
    said = [manifest.get(key) for key in ("overrides", "excludes", "dependency-metadata")]
    named = [
        string(item.get("name")) for items in (roots, virtual, *said) for item in tables(items)
    ]
    named += [*strings(manifest.get("members")), *strings(manifest.get("excludes"))]
    return frozenset(map(canonicalize_name, named))


def roots_of(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the projects that an installation starts from: the one beside the lock, else all."""
    packages = tables(document.get(_key_of_packages(document)))
    beside = [
        item
        for item in packages
        if any(mapping(item.get("source")).get(kind) == "." for kind in _OWN)
    ]
    members = strings(mapping(document.get("manifest")).get("members"))
    return beside or [item for item in packages if item.get("name") in members]


def _key_of_packages(document: Mapping[str, object]) -> str:
    """Return `package`, or its name in uv 0.2, which later releases still read."""
    return "package" if "package" in document else "distribution"


def groups_of(table: Mapping[str, object]) -> Mapping[str, object]:
    """Return the groups of a project, or of its `metadata`, by any of uv's names."""
    names = ("dev-dependencies", "requires-dev", "dependency-groups")
    return next((groups for name in names if (groups := mapping(table.get(name)))), {})


def _find_own_folder(root: Mapping[str, object]) -> str:
    """Return the folder of a project of the user's own, relative to the lock."""
    source = mapping(root.get("source"))
    return next((string(source[kind]) for kind in _OWN if kind in source), ".")


def project_of(root: Mapping[str, object], selection: LockSelection) -> Project | None:
    """Return the project in the folder of an entry, if it can be read."""
    place = posixpath.normpath(posixpath.join(_find_own_folder(root), "pyproject.toml"))
    return find_project(*selection.beside(place))


class _ConflictItem(NamedTuple):
    """A project, extra or group that `conflicts` names."""

    package: str
    #: The extra; a group with a `:` in front; empty for the project itself.
    part: str

    @property
    def encoded(self) -> str:
        """Name of the extra that markers use for the item (`universal_marker.rs`)."""
        kind = "group" if self.part.startswith(":") else "extra" if self.part else "project"
        tail = f"-{self.part.lstrip(':')}" if self.part else ""
        return f"{kind}-{len(self.package)}-{self.package}{tail}"

    def __str__(self) -> str:
        if not self.part:
            return f"the project `{self.package}`"
        kind = "group" if self.part.startswith(":") else "extra"
        return f"the {kind} `{self.part.lstrip(':')}` of {self.package}"


class _Walk:
    """Walks a lock as uv does (`uv-resolver/src/lock/installable.rs`)."""

    def __init__(
        self,
        selection: LockSelection,
        document: Mapping[str, object],
        entries: Sequence[LockEntry],
        roots: Sequence[Mapping[str, object]],
        conflicts: Sequence[frozenset[_ConflictItem]],
    ) -> None:
        self._selection = selection
        self._entries = entries
        self._conflicts = conflicts
        self._steps = 0
        #: Active extra → the part that activated it.
        self._origins: dict[str, str] = {}
        self._by_name: dict[str, list[int]] = {}
        for number, entry in enumerate(entries):
            self._by_name.setdefault(entry.name, []).append(number)
        tables_of_roots = set(map(id, roots))
        self._roots = [
            number for number, entry in enumerate(entries) if id(entry.table) in tables_of_roots
        ]
        #: Projects that are no packages of the lock: their lines are the askers.
        self._projects = {
            number: project_of(entry.table, selection)
            for number, entry in enumerate(entries)
            if number in self._roots or _is_virtual(entry.table)
        }
        manifest = mapping(document.get("manifest"))
        self._members = {*strings(manifest.get("members"))}
        groups = mapping(manifest.get("dependency-groups"))
        self._manifest = [
            edge
            for items in (
                manifest.get("requirements"),
                *(groups.get(name) for name in sorted(selection.groups)),
            )
            for edge in _iter_edges(items)
        ]
        main = [""] if selection.has_main else []
        requested = [*main, *sorted(selection.extras), *(f":{name}" for name in selection.groups)]
        self._starts = [
            (number, part)
            for number in self._roots
            for part in requested
            if not part or part in entries[number].dependencies
        ]

    def check_requested(self) -> None:
        """Raise `SpecError` if the selection itself has parts that exclude one another.

        `uv sync` checks this in every project that it may reach, whatever the markers say.
        """
        if not self._conflicts:
            return
        askers, _ = self._pass(frozenset(), every=True)
        names = {self._entries[number].name for number in askers}
        members = (names & self._members) | {self._entries[number].name for number in self._roots}
        for several in self._conflicts:
            self._check(
                [
                    item
                    for item in several
                    if item.package in members
                    and (
                        not item.part
                        or item.part in self._selection.extras
                        or (item.part[0] == ":" and item.part[1:] in self._selection.groups)
                    )
                ]
            )

    def run(self) -> list[tuple[LockEntry, tuple[str, ...]]]:
        """Return the installed entries, in order, each with its askers.

        A dependency can activate an extra that a marker seen earlier names, so the walk repeats
        until no further extra is activated.

        Raises `SpecError` for extras that exclude one another, and `InconsistentLock`.
        """
        active = frozenset(
            _ConflictItem(self._entries[number].name, part).encoded
            for number, part in self._starts
            if self._conflicts
        )
        askers, after = self._pass(active)
        while after != active:
            active = after
            askers, after = self._pass(active)
        for several in self._conflicts:
            self._check(
                [
                    item
                    for item in several
                    if item.part[:1] not in ("", ":") and item.encoded in active
                ]
            )
        return sorted(
            ((self._entries[number], tuple(sorted(names))) for number, names in askers.items()),
            key=lambda reached: (reached[0].name, reached[0].version),
        )

    def _pass(
        self, start: frozenset[str], *, every: bool = False
    ) -> tuple[dict[int, set[str]], frozenset[str]]:
        """Return reached entries with their askers, and the extras that are then active.

        Follows `every` dependency, or only those whose markers hold.
        """
        askers: dict[int, set[str]] = {number: set() for number in self._roots}
        queue = [*self._starts]
        origins = {(number, part): part for number, part in queue}
        activated = {*start}

        def follow(asker: str, edge: LockEdge, origin: str) -> None:
            self._steps += 1 + len(edge.extras) + len(edge.marker or "") // 1000
            if self._steps > _MOST_STEPS:
                raise InconsistentLock(f"more than {_MOST_STEPS} dependencies lead out of it")
            encoded = {_ConflictItem(edge.name, extra).encoded for extra in edge.extras}
            new = encoded - activated if self._conflicts else set()
            activated.update(new)
            try:
                if not every and not marker_holds(
                    edge.marker, self._selection.environment, activated
                ):
                    activated.difference_update(new)
                    return
                number = self._find(edge, asker)
            except BrokenMarker as error:
                raise InconsistentLock(
                    f"the marker of `{edge.name}` for {asker} is not valid: {error}"
                ) from error
            for extra in () if every else new:
                self._origins.setdefault(extra, origin)
            askers.setdefault(number, set())
            if asker != edge.name:
                askers[number].add(asker)
            for part in ("", *sorted(edge.extras)):
                if (number, part) not in origins:
                    origins[number, part] = origin
                    queue.append((number, part))

        for edge in self._manifest:
            follow(self._selection.label, edge, "")
        for number, part in queue:  # grows while it is walked
            entry = self._entries[number]
            is_project = number in self._projects
            place_of = places(self._projects[number], {part}) if is_project else None
            for edge in entry.dependencies.get(part, ()):
                asker = entry.name
                if place_of is not None:
                    asker = place_of.get(edge.name) or entry.place or self._selection.label
                follow(asker, edge, origins[number, part])
        return askers, frozenset(activated)

    def _find(self, edge: LockEdge, asker: str) -> int:
        candidates = [
            number
            for number in self._by_name.get(edge.name, ())
            if (not edge.version or edge.version == self._entries[number].version)
            and (edge.source is None or edge.source == self._entries[number].source)
        ]
        if len(candidates) > 1:
            candidates = [
                number
                for number in candidates
                if not self._entries[number].forks
                or any(
                    marker_holds(marker, self._selection.environment)
                    for marker in self._entries[number].forks
                )
            ] or candidates
        if not candidates:
            raise InconsistentLock(f"{asker} asks for `{edge.name}`, which the lock does not hold")
        return candidates[0]

    def _check(self, together: Sequence[_ConflictItem]) -> None:
        if len(together) < 2:
            return
        one, other = sorted(together)[:2]
        names = f"{one} and {other}"
        if one.package == other.package:
            names = names.replace(f" of {one.package}", "", 1)
        parts = {self._origins.get(item.encoded, item.part) for item in (one, other)}
        hint = "ask for one of them"
        if group := min((part[1:] for part in parts if part.startswith(":")), default=""):
            hint += f"; `:-{group}` leaves a default group out"
        raise SpecError([Problem(f"{names} exclude each other", self._selection.label, hint=hint)])


def _collect_names(
    document: Mapping[str, object], roots: Sequence[Mapping[str, object]]
) -> tuple[set[str], set[str]]:
    """Return the extras and the groups of the projects, normalized."""
    extras: set[str] = set()
    groups: set[str] = {*mapping(mapping(document.get("manifest")).get("dependency-groups"))}
    for root in roots:
        metadata = mapping(root.get("metadata"))
        extras |= {
            *mapping(root.get("optional-dependencies")),
            *strings(metadata.get("provides-extras")),
        }
        groups |= {*groups_of(root), *groups_of(metadata)}
    return set(map(canonicalize_name, extras)), set(map(canonicalize_name, groups))


def _find_indirect(project: Project | None, selection: LockSelection) -> set[str]:
    """Return extras that other extras include: locks have only the expansion."""
    if project is None:
        return set()
    try:
        return reachable_parts(
            project, selection.extras | {f":{group}" for group in selection.groups}
        )
    except SpecError:
        return set()


def _conflicts(document: Mapping[str, object]) -> list[frozenset[_ConflictItem]]:
    """Return sets of items that exclude one another, as the lock declares them."""
    declared = document.get("conflicts")
    return [
        frozenset(
            _ConflictItem(
                canonicalize_name(string(item.get("package"))),
                canonicalize_name(string(item.get("extra")))
                or (f":{canonicalize_name(group)}" if (group := string(item.get("group"))) else ""),
            )
            for item in tables(several)
        )
        for several in (declared if isinstance(declared, list) else [])
    ]


def _read_dependencies(table: Mapping[str, object]) -> Mapping[str, tuple[LockEdge, ...]]:
    dependencies = {"": tuple(_iter_edges(table.get("dependencies")))}
    for extra, items in mapping(table.get("optional-dependencies")).items():
        dependencies[canonicalize_name(extra)] = tuple(_iter_edges(items))
    for group, items in groups_of(table).items():
        dependencies[f":{canonicalize_name(group)}"] = tuple(_iter_edges(items))
    return dependencies


def _iter_edges(items: object) -> Iterator[LockEdge]:
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


def _make_package(entry: LockEntry, askers: tuple[str, ...]) -> Package:
    source = mapping(entry.source)
    wheels = tuple(_iter_wheels(entry, source))
    sdist = mapping(entry.table.get("sdist"))
    return Package(
        name=entry.name,
        version=entry.version,
        index=without_login(string(source.get("registry"))) or None,
        wheels=wheels,
        source_only=not wheels,
        via=askers,
        place=entry.place,
        source="" if wheels else without_login(_find_origin(source)),
        sdist=Sdist(*_read_file(sdist, source)) if sdist else None,
    )


def _iter_wheels(entry: LockEntry, source: Mapping[str, object]) -> Iterator[Wheel]:
    """Yield the wheels of an entry. Raises `SpecError` for an unknown kind of hash."""
    for table in tables(entry.table.get("wheels")):
        wheel = Wheel(*_read_file(table, source))
        if not wheel.filename.endswith(".whl"):
            continue
        if string(table.get("hash")).startswith("sha256:") and not wheel.sha256:
            file, _, line = entry.place.partition(":")
            problem = f"`{wheel.filename}`: its hash is not `sha256:` with 64 hex digits"
            raise SpecError([Problem(problem, file, int(line) if line else None, hint=_HINT)])
        yield wheel


def _read_file(
    table: Mapping[str, object], source: Mapping[str, object]
) -> tuple[str, str, str, int | None]:
    """Return the name, URL, hash and size of a file."""
    address = address_of(table) or address_of(source)
    return (
        string(table.get("filename")) or posixpath.basename(path_in(address)),
        without_login(address),
        sha256_digits(string(table.get("hash"))),
        byte_count(table.get("size")),
    )


def _find_origin(source: Mapping[str, object]) -> str:
    for kind in ("git", "url", "path", *_OWN):
        if kind in source:
            return ("git+" if kind == "git" else "") + string(source[kind])
    return ""
