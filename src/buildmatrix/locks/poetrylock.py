"""`poetry.lock` (lock versions 1.0 to 2.x), as one target would install it.

Format: `poetry/packages/locker.py`. The lock names files and hashes, and no addresses; what the
project requires is only in the `pyproject.toml` beside it. Since 2.1 each entry says for which
groups and markers it is. An older lock does not: `poetry install` resolves the project again with
the entries of the lock as its only index (`poetry/installation/installer.py`), and so does this.
Where the project is missing, everything that an older lock holds for the asked groups counts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from packaging.utils import canonicalize_name
from packaging.version import Version

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks import constraints
from buildmatrix.locks.lock_file import LockFile
from buildmatrix.locks.markers import BrokenMarker
from buildmatrix.locks.model import Lock, Package, Sdist, Wheel
from buildmatrix.locks.projects import Project, expand, find_project, line_of_key
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import sha256_digits
from buildmatrix.locks.walk import InconsistentLock, LockEdge, LockEntry
from buildmatrix.parsing import parse_version, version_or_none
from buildmatrix.text import without_login
from buildmatrix.toml import mapping, string, strings, tables, tool_table

_HINT = "run `poetry lock`"
#: Group of what a project needs to run.
_MAIN = "main"
#: Name at the start of a requirement that a lock lists for an extra: `trio (>=0.32.0)`.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
#: Edges that are looked at for one lock; the largest real ones have some 5000.
_MOST = 500_000
#: Key of a dependency that says where it is → types of the source of its entry.
_KINDS = {"git": ("git",), "url": ("url",), "path": ("directory", "file"), "file": ("file",)}


def read(file: LockFile) -> Lock:
    """The packages that a target gets; raises `SpecError`."""
    selection, document, target = file.selection, file.document, file.selection.target
    metadata = mapping(document.get("metadata"))
    version = string(metadata.get("lock-version")) or "1.0"
    if version.split(".")[0] not in ("1", "2"):
        problem = f"its `lock-version` is {version!r}, and only 1.x and 2.x can be read"
        raise SpecError([Problem(problem, selection.label)])
    pythons = string(metadata.get("python-versions")) or "*"
    # As for other locks, only the minor version counts.
    if not any(constraints.allows(pythons, f"{target.python}.{patch}") for patch in range(100)):
        problem = f"the lock is for Python {pythons}, and {target.id} has {target.python}"
        raise SpecError([Problem(problem, selection.label)])
    entries = file.entries(_dependencies, lambda _: ())
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
        roots = list(_roots(selection, project)) if project is not None else []
        if version in ("1", "2") or version.startswith(("1.", "2.0")):
            chosen = _resolved(selection, document, entries, project, roots)
        else:
            chosen = _marked(selection, entries)
        askers = _askers(selection, [*roots, *(_Root("", LockEdge(n)) for n in chosen)], chosen)
    except (InconsistentLock, BrokenMarker) as error:
        raise SpecError([Problem(str(error), selection.label, hint=_HINT)]) from error
    files = mapping(metadata.get("files"))
    return file.lock(
        (
            _package(entry, askers[name], files.get(string(entry.table.get("name"))), selection)
            for name, entry in sorted(chosen.items())
        ),
        left_out,
    )


def _extras(project: Project) -> set[str]:
    poetry = tool_table(project.document, "poetry")
    return {*project.extras, *map(canonicalize_name, mapping(poetry.get("extras")))}


def _own_name(project: Project) -> str:
    poetry = tool_table(project.document, "poetry")
    return project.name or canonicalize_name(string(poetry.get("name")))


def _optional_groups(project: Project) -> set[str]:
    """The groups that `poetry install` leaves out: `optional = true`, in its own table of them."""
    poetry = tool_table(project.document, "poetry")
    return {
        canonicalize_name(name)
        for name, group in mapping(poetry.get("group")).items()
        if mapping(group).get("optional") is True
    }


@dataclass(frozen=True, slots=True)
class _Root:
    """One requirement of the project."""

    #: `file:line`.
    place: str
    edge: LockEdge
    #: Installed only with an extra that lists it.
    is_optional: bool = False


def _selected(selection: LockSelection) -> set[str]:
    return {*selection.groups, *([_MAIN] if selection.has_main else [])}


def _marked(selection: LockSelection, entries: Sequence[LockEntry]) -> dict[str, LockEntry]:
    """The entries whose groups and markers are those of the selection, by name."""
    groups = _selected(selection)
    chosen: dict[str, LockEntry] = {}
    for entry in entries:
        markers = entry.table.get("markers")
        of_group = mapping(markers)
        asked = [
            name for name in strings(entry.table.get("groups")) if canonicalize_name(name) in groups
        ]
        texts = [markers] if isinstance(markers, str) else [of_group.get(name) for name in asked]
        if not asked or not any(
            selection.fits(string(text) or None, selection.extras) for text in texts
        ):
            continue
        other = chosen.setdefault(entry.name, entry)
        if other is not entry:
            both = f"{other.version} and {entry.version}"
            raise InconsistentLock(f"it holds {entry.name} {both} for one selection")
    return chosen


def _resolved(
    selection: LockSelection,
    document: Mapping[str, object],
    entries: Sequence[LockEntry],
    project: Project | None,
    roots: Sequence[_Root],
) -> dict[str, LockEntry]:
    """The entries that Poetry picks when it resolves the project again, by name."""
    listed = _of_extras(document, selection)
    late: list[str] = []
    if project is None:
        groups = _selected(selection)
        for entry in entries:
            category = string(entry.table.get("category"))
            is_optional = entry.table.get("optional") is True and entry.name not in listed
            if not is_optional and (not category or category in groups):
                late.append(entry.name)
    own = _own_name(project) if project is not None else ""
    resolution = _Resolution(selection, entries, own)
    solution = resolution.solve(roots, late if project is None else ())
    if project is None:
        return solution
    # Poetry takes what an extra leads to as required also if a requirement for another platform or
    # Python names it.
    required_roots = [
        replace(root, edge=replace(root.edge, marker=None))
        for root in roots
        if not root.is_optional and resolution.is_met(root.edge)
    ]
    required = _askers(selection, required_roots, solution)
    queue, reachable = sorted(listed), {*listed}
    by_name = {entry.name: entry for entry in entries}
    for name in queue:  # grows while it is walked
        # Poetry takes whatever an extra can lead to, also by way of what is not for this target.
        # Of several entries, it looks at the last.
        if name in by_name:
            names = map(canonicalize_name, mapping(by_name[name].table.get("dependencies")))
            new = {*names} - reachable
            reachable |= new
            queue += new
    wanted = {*required, *reachable}
    return {name: entry for name, entry in solution.items() if name in wanted}


@dataclass(slots=True)
class _Frame:
    """One decision, and what is left to try."""

    #: Length of the undo list, and positions in the lists of names, before the decision.
    mark: int
    at: list[int]
    name: str
    candidates: list[LockEntry]
    #: Names whose decisions made candidates fail.
    blame: set[str] = field(default_factory=set)
    #: The last requirement that made one fail.
    failed: tuple[str, LockEdge] | None = None


class _Resolution:
    """Resolves a project with the entries of a lock as the only index.

    As Poetry does: one entry of a name, usable on the target's Python and allowed by all that
    require it; what is decided stays, and the highest version comes first.
    """

    def __init__(self, selection: LockSelection, entries: Sequence[LockEntry], own: str) -> None:
        self._selection = selection
        self._own = own
        self._locked = {entry.name for entry in entries}
        python = selection.environment["python_full_version"]
        self._usable: dict[str, list[LockEntry]] = {}
        # Of equal versions, Poetry takes that of the source which the lock names first.
        sources = list(dict.fromkeys(map(_source_name, entries)))
        ordered = sorted(entries, key=lambda entry: sources.index(_source_name(entry)))
        for entry in sorted(ordered, key=_rank, reverse=True):
            if constraints.allows(string(entry.table.get("python-versions")) or "*", python):
                self._usable.setdefault(entry.name, []).append(entry)
        self._edges: dict[str, list[tuple[str, LockEdge]]] = {}
        self._extras: dict[str, frozenset[str]] = {}
        self._chosen: dict[str, LockEntry] = {}
        #: Names to decide, those that are always required first.
        self._waiting: tuple[list[str], list[str]] = [], []
        self._undo: list[Callable[[], object]] = []
        self._steps = 0

    def solve(self, roots: Iterable[_Root], late: Sequence[str] = ()) -> dict[str, LockEntry]:
        """The chosen entries, by name; names of `late` are decided when nothing else is left.

        Raises `InconsistentLock` where no entries fit together.
        """
        late = [name for name in late if name in self._usable]
        starts = [
            (root.place, root.edge)
            for root in roots
            if _is_active(self._selection, root.edge, frozenset(), root.place)
        ]
        self._impose(starts)
        at = [0, 0, 0]
        frames: list[_Frame] = []
        why: InconsistentLock | None = None
        while (name := self._next(at, late)) is not None:
            frame = _Frame(len(self._undo), [*at], name, self._candidates(name))
            while not self._decide(frame):
                why = why or self._conflict(frame)
                # Only a change of what leads here can help: the latest such decision is tried anew.
                blame = self._causes({frame.name, *frame.blame})
                while frames and frames[-1].name not in blame:
                    frames.pop()
                if not frames:
                    raise why
                frame = frames.pop()
                frame.blame |= blame - {frame.name}
                self._roll_back(frame.mark)
                at[:] = frame.at
            frames.append(frame)
        return self._chosen

    def is_met(self, edge: LockEdge) -> bool:
        """Return True if the solution has what an edge asks for, whether or not its marker holds.

        As in Poetry, extras count as a whole: `a[x]` is not met where `a[x,y]` is asked for.
        """
        entry = self._chosen.get(edge.name)
        if entry is None or not constraints.allows(edge.allows, entry.version):
            return False
        asked = [other.extras for _, other in self._edges.get(edge.name, ())]
        return not edge.extras or edge.extras in asked

    def _next(self, at: list[int], late: Sequence[str]) -> str | None:
        for place, names in enumerate((*self._waiting, late)):
            while at[place] < len(names):
                at[place] += 1
                if names[at[place] - 1] not in self._chosen:
                    return names[at[place] - 1]
        return None

    def _candidates(self, name: str) -> list[LockEntry]:
        edges = self._edges.get(name, [])
        self._count(len(edges))
        return [
            entry
            for entry in self._usable.get(name, ())
            if all(_serves(edge, entry) for _, edge in edges)
        ]

    def _decide(self, frame: _Frame) -> bool:
        """Choose the first candidate that what is chosen allows; False where none is left."""
        name = frame.name
        while frame.candidates:
            entry = self._chosen[name] = frame.candidates.pop(0)
            self._undo.append(lambda: self._chosen.pop(name))
            failed = self._impose(self._required(entry))
            if failed is None:
                return True
            frame.failed = failed
            frame.blame |= {failed[0], failed[1].name}
            self._roll_back(frame.mark)
        return False

    def _causes(self, names: set[str]) -> set[str]:
        """The names with all that lead to them."""
        queue, causes = sorted(names), {*names}
        for name in queue:  # grows while it is walked
            edges = self._edges.get(name, ())
            self._count(len(edges))
            new = {asker for asker, _ in edges} - causes
            causes |= new
            queue += new
        return causes

    def _required(self, entry: LockEntry) -> list[tuple[str, LockEdge]]:
        extras = self._extras.get(entry.name, frozenset())
        edges = list(_active_edges(self._selection, entry, extras))
        self._count(len(edges))
        return [(entry.name, edge) for edge in edges]

    def _impose(self, edges: list[tuple[str, LockEdge]]) -> tuple[str, LockEdge] | None:
        """Add requirements, and return the first that does not allow what is chosen."""
        for asker, edge in edges:  # grows while it is walked
            name = edge.name
            if name not in self._locked and self._own in ("", name):
                continue  # The project itself.
            if name not in self._edges:
                names = self._waiting[edge.marker is not None]
                self._edges[name] = []
                names.append(name)
                self._undo += [names.pop, partial(self._edges.pop, name)]
            self._edges[name].append((asker, edge))
            self._undo.append(self._edges[name].pop)
            before = self._extras.get(name, frozenset())
            self._extras[name] = before | edge.extras
            self._undo.append(partial(self._extras.__setitem__, name, before))
            if (entry := self._chosen.get(name)) is None:
                continue
            if not _serves(edge, entry):
                return asker, edge
            if not edge.extras <= before:
                edges += self._required(entry)
        return None

    def _conflict(self, frame: _Frame) -> InconsistentLock:
        name = frame.name
        edges = [*self._edges.get(name, ()), *([frame.failed] if frame.failed else [])]
        for asker, edge in edges:
            usable = self._usable.get(edge.name, ())
            if not any(_serves(edge, entry) for entry in usable):
                here = edge.name in self._locked and not usable
                where = f" for Python {self._selection.target.python}" if here else ""
                problem = f"{asker} asks for `{edge.name}`, which the lock does not hold{where}"
                return InconsistentLock(problem)
        askers = " and ".join(sorted({asker for asker, _ in edges})[:3])
        return InconsistentLock(f"no entry of `{name}` fits all that asks for it: {askers}")

    def _count(self, steps: int) -> None:
        self._steps += steps + 1
        if self._steps > _MOST:
            raise InconsistentLock(f"more than {_MOST} dependencies lead out of it")

    def _roll_back(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()


def _askers(
    selection: LockSelection,
    roots: Iterable[_Root],
    chosen: Mapping[str, LockEntry],
) -> dict[str, tuple[str, ...]]:
    """The names of `chosen` that roots lead to, with what requires them: `file:line`, and names."""
    askers: dict[str, set[str]] = {}
    extras: dict[str, frozenset[str]] = {}
    queue = [
        (root.place, root.edge)
        for root in roots
        if _is_active(selection, root.edge, frozenset(), root.place)
    ]
    for asker, edge in queue:  # grows while it is walked
        name = edge.name
        if len(queue) > _MOST:
            raise InconsistentLock(f"more than {_MOST} dependencies lead out of it")
        if name not in chosen:
            continue
        new = name not in askers
        askers.setdefault(name, set())
        if asker not in ("", name):
            askers[name].add(asker)
        before = extras.get(name, frozenset())
        extras[name] = before | edge.extras
        if new or extras[name] != before:
            # An extra can also activate a plain dependency, through its marker.
            queue += [(name, edge) for edge in _active_edges(selection, chosen[name], extras[name])]
    return {name: tuple(sorted(names)) for name, names in askers.items()}


def _active_edges(
    selection: LockSelection, entry: LockEntry, extras: frozenset[str]
) -> Iterator[LockEdge]:
    for extra in ("", *sorted(extras)):
        for edge in entry.dependencies.get(extra, ()):
            if _is_active(selection, edge, extras, entry.name):
                yield edge


def _is_active(
    selection: LockSelection, edge: LockEdge, extras: frozenset[str], asker: str
) -> bool:
    try:
        return selection.fits(edge.marker, extras)
    except BrokenMarker as error:
        raise InconsistentLock(
            f"the marker of `{edge.name}` for {asker} is not valid: {error}"
        ) from error


def _serves(edge: LockEdge, entry: LockEntry) -> bool:
    """Return True if an edge allows the version and the source of an entry."""
    if not constraints.allows(edge.allows, entry.version):
        return False
    if edge.source is None:
        return True
    source = mapping(entry.source)
    kind, name = string(source.get("type")), string(source.get("reference")).lower()
    if isinstance(edge.source, str):
        return name == edge.source if kind == "legacy" else not kind and edge.source == "pypi"
    assert isinstance(edge.source, tuple)  # See `_edges`.
    wanted, address = edge.source
    return kind in _KINDS[wanted] and (wanted != "url" or source.get("url") == address)


def _source_name(entry: LockEntry) -> tuple[str, str]:
    """Return the kind and the name of the index that an entry is from; empty for the public one."""
    source = mapping(entry.source)
    kind = string(source.get("type"))
    return kind, string(source.get("reference")) if kind == "legacy" else ""


def _rank(entry: LockEntry) -> tuple[bool, Version]:
    version = version_or_none(entry.version)
    return version is not None, version or parse_version("0")


def _of_extras(table: Mapping[str, object], selection: LockSelection) -> set[str]:
    """The distributions that a table lists for the extras which are asked for."""
    return {
        canonicalize_name(name)
        for extra, names in mapping(table.get("extras")).items()
        if canonicalize_name(extra) in selection.extras
        for name in strings(names)
    }


def _roots(selection: LockSelection, project: Project) -> Iterator[_Root]:
    """What the project asks for, in `[project]` and in `[tool.poetry]`."""
    for requirement in expand(
        project, {"", *selection.extras, *(f":{group}" for group in selection.groups)}
    ):
        marker = str(requirement.parsed.marker) if requirement.parsed.marker else None
        extras = frozenset(map(canonicalize_name, requirement.parsed.extras))
        edge = LockEdge(requirement.name, extras, marker, allows=str(requirement.parsed.specifier))
        yield _Root(project.place(requirement), edge)
    named = {requirement.name for requirement in project.requirements if not requirement.part}
    for group, dependencies in _poetry_groups(project).items():
        if group not in _selected(selection):
            continue
        table = "tool.poetry.dependencies" if group == _MAIN else f"tool.poetry.group.{group}"
        for name, value in dependencies.items():
            key = canonicalize_name(name)
            # Beside `[project]`, the table only says where its distributions come from.
            if key == "python" or (group == _MAIN and key in named):
                continue
            place = f"{project.label}:{line_of_key(project.text, name, table)}"
            for edge, is_optional in _edges(name, value):
                yield _Root(place, edge, is_optional)


def _poetry_groups(project: Project) -> dict[str, Mapping[str, object]]:
    poetry = tool_table(project.document, "poetry")
    groups = {_MAIN: mapping(poetry.get("dependencies"))}
    if "dev-dependencies" in poetry:
        groups["dev"] = mapping(poetry["dev-dependencies"])
    for name, group in mapping(poetry.get("group")).items():
        groups[canonicalize_name(name)] = mapping(mapping(group).get("dependencies"))
    return groups


def _dependencies(item: Mapping[str, object]) -> Mapping[str, tuple[LockEdge, ...]]:
    """Return the requirements of an entry; optional ones belong to the extras that list them."""
    listed = {
        canonicalize_name(extra): {
            canonicalize_name(match[1]) for text in strings(names) if (match := _NAME.match(text))
        }
        for extra, names in mapping(item.get("extras")).items()
    }
    dependencies: dict[str, list[LockEdge]] = {"": [], **{extra: [] for extra in listed}}
    for name, value in mapping(item.get("dependencies")).items():
        for edge, is_optional in _edges(name, value):
            for extra in (
                [extra for extra, names in listed.items() if edge.name in names]
                if is_optional
                else [""]
            ):
                dependencies[extra].append(edge)
    return {extra: tuple(edges) for extra, edges in dependencies.items()}


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
        source: object = string(table.get("source")).lower() or None
        for kind in _KINDS:
            if kind in table:
                source = kind, table[kind]
        edge = LockEdge(canonicalize_name(name), extras, marker, source=source, allows=allowed)
        yield edge, table.get("optional") is True


def _package(
    entry: LockEntry, askers: tuple[str, ...], old: object, selection: LockSelection
) -> Package:
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
    archives = [file for file in files if not file[0].endswith(".whl") and "/" not in file[0]]
    pythons, target = string(entry.table.get("python-versions")) or "*", selection.target
    # Poetry 2 locks such entries, and installs them; an index offers them to no other tool.
    is_offered = constraints.allows(pythons, selection.environment["python_full_version"])
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
        unknown=""
        if is_offered
        else f"it is for Python {pythons}, and {target.id} has {target.python}",
        sdist=Sdist(archives[0][0], url if kind == "url" else "", archives[0][1])
        if archives
        else None,
    )
