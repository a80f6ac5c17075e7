"""Poetry's version constraints, and its resolution with the entries of a lock as the only index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from msgspec import Struct, field
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from buildmatrix.base.parsing import parse_specifiers, parse_version, version_or_none
from buildmatrix.base.toml import mapping, string
from buildmatrix.locks.lock_file import InconsistentLock, LockEdge, LockEntry
from buildmatrix.locks.selection import BrokenMarker, LockSelection

# Constraints: PEP 440 with `^1.2`, `~1.2`, `1.*`, `*` and `
#
# `. Source: https://python-poetry.org/docs/dependency-specification/, "Version constraints".


@lru_cache(maxsize=1 << 15)
def allows_version(constraint: str, version: str) -> bool:
    """Return True if `version` is within `constraint`, or if either is invalid.

    A wrong True takes the entry of the lock.
    """
    try:
        parsed = parse_version(version)
        return any(
            _specifier(part).contains(parsed, prereleases=True)
            for part in re.split(r"\s*\|\|?\s*", constraint.strip() or "*")
        )
    except (InvalidVersion, InvalidSpecifier):
        return True


def python_marker(constraint: str) -> str:
    """Return a constraint on Python as an environment marker; empty if it is invalid."""
    try:
        parts = [_specifier(part) for part in re.split(r"\s*\|\|?\s*", constraint)]
    except (InvalidVersion, InvalidSpecifier):
        return ""
    texts = [
        " and ".join(
            f"python_full_version {specifier.operator} '{specifier.version}'" for specifier in part
        )
        for part in parts
    ]
    return "" if "" in texts else " or ".join(f"({text})" for text in texts)


def _specifier(text: str) -> SpecifierSet:
    parts = [part for part in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text.strip(" ()")) if part]
    return parse_specifiers(
        ",".join(clause for part in parts for clause in _clauses(part.replace(" ", "")))
    )


def _clauses(part: str) -> list[str]:
    if part == "*":
        return []
    if part.startswith("^"):
        release = parse_version(part[1:]).release
        keep = next((n for n, number in enumerate(release) if number), len(release) - 1)
        return [f">={part[1:]}", f"<{_next_release(release, keep)}.dev0"]
    if part.startswith("~") and not part.startswith("~="):
        release = parse_version(part[1:]).release
        return [f">={part[1:]}", f"<{_next_release(release, min(1, len(release) - 1))}.dev0"]
    return [part if part[0] in "<>=!~" else f"=={part}"]


def _next_release(release: tuple[int, ...], position: int) -> str:
    return ".".join(map(str, (*release[:position], release[position] + 1)))


# Resolution


#: Maximum edges per lock; the largest real ones have some 5000.
_MOST = 500_000
#: Key of a dependency with its place → types of the source of its entry.
SOURCE_KINDS = {"git": ("git",), "url": ("url",), "path": ("directory", "file"), "file": ("file",)}


class Root(Struct, frozen=True):
    """One requirement of the project."""

    #: `file:line`.
    place: str
    edge: LockEdge
    #: Installed only with an extra that lists it.
    is_optional: bool = False


class _Frame(Struct):
    """One decision, and its untried candidates."""

    #: Length of the undo list, and positions in the lists of names, before the decision.
    mark: int
    at: list[int]
    name: str
    candidates: list[LockEntry]
    #: Names whose decisions made candidates fail.
    blame: set[str] = field(default_factory=set)
    #: The last requirement that made one fail.
    failed: tuple[str, LockEdge] | None = None


class Resolution:
    """Resolves a project with the entries of a lock as the only index.

    As in Poetry: one entry of a name, usable on the target's Python and allowed by all askers;
    decisions stay, the last requirement is decided first, and the highest version comes first.
    Source: `_propagate` and `_choose_package_version` of Poetry 1.8.5's
    `mixology/version_solver.py`.
    """

    def __init__(self, selection: LockSelection, entries: Sequence[LockEntry], own: str) -> None:
        self._selection = selection
        self._own = own
        self._locked = {entry.name for entry in entries}
        python = selection.environment["python_full_version"]
        self._usable: dict[str, list[LockEntry]] = {}
        # Of equal versions, Poetry takes that of the source which comes first in the lock.
        sources = list(dict.fromkeys(map(_source_name, entries)))
        ordered = sorted(entries, key=lambda entry: sources.index(_source_name(entry)))
        for entry in sorted(ordered, key=_version_rank, reverse=True):
            if allows_version(string(entry.table.get("python-versions")) or "*", python):
                self._usable.setdefault(entry.name, []).append(entry)
        self._edges: dict[str, list[tuple[str, LockEdge]]] = {}
        self._extras: dict[str, frozenset[str]] = {}
        self._chosen: dict[str, LockEntry] = {}
        #: Undecided names, required ones first.
        self._waiting: tuple[list[str], list[str]] = [], []
        self._undo: list[Callable[[], object]] = []
        self._steps = 0

    def solve(self, roots: Iterable[Root], late: Sequence[str] = ()) -> dict[str, LockEntry]:
        """Return the chosen entries by name; names of `late` are decided last.

        Raises `InconsistentLock` if no entries fit together.
        """
        late = [name for name in late if name in self._usable]
        self._impose(_active_roots(self._selection, roots)[::-1])
        at = [0, 0, 0]
        frames: list[_Frame] = []
        why: InconsistentLock | None = None
        while (name := self._next(at, late)) is not None:
            frame = _Frame(len(self._undo), [*at], name, self._candidates(name))
            while not self._decide(frame):
                why = why or self._conflict(frame)
                # Only a change of its causes can help: the latest such decision is revised.
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
        """Return True if the solution satisfies an edge, whether or not its marker holds.

        As in Poetry, extras count as a whole: `a[x]` is not satisfied by `a[x,y]`.
        """
        entry = self._chosen.get(edge.name)
        if entry is None or not allows_version(edge.allows, entry.version):
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
        """Choose the first compatible candidate; return False if none is left."""
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
        """Return the names with all of their causes."""
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
        return [(entry.name, edge) for edge in edges[::-1]]

    def _impose(self, edges: list[tuple[str, LockEdge]]) -> tuple[str, LockEdge] | None:
        """Add requirements, and return the first that contradicts a decision."""
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


def find_askers(
    selection: LockSelection, roots: Iterable[Root], chosen: Mapping[str, LockEntry]
) -> dict[str, tuple[str, ...]]:
    """Return names of `chosen` reachable from roots, with askers: `file:line`, and names."""
    askers: dict[str, set[str]] = {}
    extras: dict[str, frozenset[str]] = {}
    queue = _active_roots(selection, roots)
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


def _active_roots(selection: LockSelection, roots: Iterable[Root]) -> list[tuple[str, LockEdge]]:
    return [
        (root.place, root.edge)
        for root in roots
        if _is_active(selection, root.edge, frozenset(), root.place)
    ]


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
    if not allows_version(edge.allows, entry.version):
        return False
    if edge.source is None:
        return True
    source = mapping(entry.source)
    kind, name = string(source.get("type")), string(source.get("reference")).lower()
    if isinstance(edge.source, str):
        return name == edge.source if kind == "legacy" else not kind and edge.source == "pypi"
    assert isinstance(edge.source, tuple)  # See `_edges`.
    wanted, address = edge.source
    return kind in SOURCE_KINDS[wanted] and (wanted != "url" or source.get("url") == address)


def _source_name(entry: LockEntry) -> tuple[str, str]:
    """Return the kind and the name of the index that an entry is from; empty for the public one."""
    source = mapping(entry.source)
    kind = string(source.get("type"))
    return kind, string(source.get("reference")) if kind == "legacy" else ""


def _version_rank(entry: LockEntry) -> tuple[bool, Version]:
    version = version_or_none(entry.version)
    return version is not None, version or parse_version("0")
