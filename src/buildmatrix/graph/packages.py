"""The package half: requirement lines, distributions, and who requires whom.

Two witnesses, each with what the other lacks. A lock says who asked (its `via`), from requirement
lines on. Installed metadata says under which marker and for which extra (`Requires-Dist`, PEP 508),
and whether somebody asked for a distribution by its name (REQUESTED of PEP 376, PEP 610).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from buildmatrix.graph.model import Edge, Node
from buildmatrix.inventory.model import Distribution, PythonImport, SystemPackage
from buildmatrix.inventory.names import distribution_name
from buildmatrix.lock.model import Lock

#: Start of a `Requires-Dist` line: most name what is not there, and need not be parsed.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
#: A line without a marker; the specifiers in it matter to nobody here.
_PLAIN = re.compile(r"\s*[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[([^\]]*)\])?\s*(?:[(<>=!~][^;@]*)?")
#: How often extras that an extra brings are followed; real ones nest two or three deep.
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Packages:
    """The package half of a graph."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    #: As `Graph.roots`, the first three.
    roots: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Requires:
    """One `Requires-Dist` line that names something that is there."""

    name: str
    extras: frozenset[str]
    line: str
    marker: str
    #: Extra of the requiring distribution for which it holds; None for always.
    extra: str | None


def node_id(name: str) -> str:
    """Id of the node of a distribution, by its normalised name."""
    return f"distribution:{name}"


def packages(
    distributions: Iterable[Distribution],
    lock: Lock | None,
    lines: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    origins: Mapping[str, int] = MappingProxyType({}),
    system: Iterable[SystemPackage] = (),
    packaged: Mapping[str, str] = MappingProxyType({}),
) -> Packages:
    """Join what a lock and installed metadata say of the same distributions.

    `lines` has the text of requirement lines by `file:line`; `environment` the values of markers
    (PEP 508); `origins` the layers of metadata folders; `system` what the system's package manager
    installed, and `packaged` which of its packages lists a metadata folder. A distribution that is
    there twice is one node, and has the requirements of both.
    """
    installed = list(distributions)
    of_system = {one.name: one for one in system}
    nodes: dict[str, Node] = {}
    for item in installed:
        nodes.setdefault(item.name, _installed(item, origins.get(item.path), of_system, packaged))
    notes: list[str] = []
    locked = {}
    for package in lock.packages if lock is not None else ():
        known = nodes.get(package.name)
        if known is None:
            nodes[package.name] = Node(
                node_id(package.name),
                "distribution",
                f"{package.name} {package.version}".rstrip(),
                names=(package.name,),
                text="not installed: only the lock has it" if installed else "",
            )
        elif known.label != f"{package.name} {package.version}":
            notes.append(
                f"the lock has {package.name} {package.version}, installed is {known.label}"
            )
        locked[package.name] = package
    asked = {
        name: [asker for asker in one.via if asker not in locked] for name, one in locked.items()
    }
    requires = {
        name: tuple(_parsed(lines_of, nodes, environment))
        for name, lines_of in _metadata(installed).items()
    }
    extras = _extras(requires, asked, lines)
    edges = [
        *_line_edges(asked, lines),
        *_edges(requires, extras, {name: one.via for name, one in locked.items()}),
    ]
    line_nodes = [
        Node(f"line:{line}", "line", line, text=lines.get(line, ""))
        for line in sorted({line for names in asked.values() for line in names})
    ]
    return Packages(
        (*line_nodes, *(nodes[name] for name in sorted(nodes))),
        tuple(edges),
        (tuple(node.id for node in line_nodes), *_tops(installed, edges, nodes)),
        tuple(notes),
    )


def _installed(
    item: Distribution,
    layer: int | None,
    system: Mapping[str, SystemPackage],
    packaged: Mapping[str, str],
) -> Node:
    how = [f"from {item.direct_url}"] if item.direct_url else []
    if item.installer and item.installer not in ("pip", "uv"):
        how.append(f"installed by {item.installer}")
    if item.path in packaged:
        how.append(f"the system's package {packaged[item.path]}")
    if not item.has_record:
        package = None if item.path in packaged else _system_package(item, system)
        if package is not None:
            how.append(f"as it seems the system's package {package.name} {package.version}")
        how.append("has no RECORD: which files are its own is not known")
    return Node(
        node_id(item.name),
        "distribution",
        f"{item.name} {item.version}".rstrip(),
        size=item.size,
        layer=layer,
        names=(item.name,),
        text="; ".join(how),
    )


def _system_package(
    item: Distribution, system: Mapping[str, SystemPackage]
) -> SystemPackage | None:
    """The package of dpkg or apk that has the name and the version of a distribution.

    Debian policy for Python, 3.3: `python3-foo` has the import package `foo`; Alpine has
    `py3-foo`. Versions are compared without epoch and revision.
    """
    for name in (f"python3-{item.name}", f"py3-{item.name}", item.name):
        package = system.get(name)
        if package is not None:
            upstream = package.version.rpartition(":")[2]
            if re.match(rf"{re.escape(item.version)}(?![0-9.])", upstream):
                return package
    return None


def _metadata(installed: Iterable[Distribution]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for item in installed:
        found[item.name] = (*found.get(item.name, ()), *item.requires)
    return found


def _parsed(
    lines: Iterable[str], present: Mapping[str, Node], environment: Mapping[str, str]
) -> Iterator[_Requires]:
    """The lines that name something that is there and whose markers hold, for one extra or none."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    for line in dict.fromkeys(lines):
        start = _NAME.match(line)
        if start is None or distribution_name(start[1]) not in present:
            continue
        if plain := _PLAIN.fullmatch(line):
            extras = (one.strip() for one in (plain[1] or "").split(","))
            asked = frozenset(map(distribution_name, filter(None, extras)))
            yield _Requires(distribution_name(start[1]), asked, line, "", None)
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # As installers do.
        name, marker = distribution_name(requirement.name), requirement.marker
        wanted = frozenset(map(distribution_name, requirement.extras))
        if marker is None:
            yield _Requires(name, wanted, line, "", None)
            continue
        text = str(marker)
        named = set(re.findall(r"extra\s*==\s*[\"']([^\"']+)[\"']", text))
        try:
            if marker.evaluate({**environment, "extra": ""}):
                yield _Requires(name, wanted, line, text, None)
                continue
            for extra in sorted(named):
                if marker.evaluate({**environment, "extra": extra}):
                    yield _Requires(name, wanted, line, text, distribution_name(extra))
        except (UndefinedComparison, UndefinedEnvironmentName):
            yield _Requires(name, wanted, line, text, None)


def imports(found: Iterable[PythonImport], known: Iterable[Edge]) -> Iterator[Edge]:
    """Imports of another distribution's modules, where no requirement of `known` says so."""
    told = {(edge.source, edge.target) for edge in known if edge.kind == "requires"}
    for one in found:
        if one.provider is None:
            continue
        ends = (
            node_id(one.owner.partition("==")[0]),
            node_id(one.provider.partition("==")[0]),
        )
        if ends[0] == ends[1] or ends in told:
            continue
        told.add(ends)
        # It says what is loaded together, and not why anything was installed.
        yield Edge("imports", *ends, one.module, at=f"{one.path}:{one.line}", certain=False)


def _extras(
    requires: Mapping[str, tuple[_Requires, ...]],
    asked: Mapping[str, list[str]],
    lines: Mapping[str, str],
) -> dict[str, set[str]]:
    """The extras of each distribution that somebody asks for: a line, or another distribution."""
    extras: dict[str, set[str]] = {}
    for name, askers in asked.items():
        for line in askers:
            if found := re.match(r"\s*[A-Za-z0-9._-]+\s*\[([^\]]*)\]", lines.get(line, "")):
                wanted = (distribution_name(one.strip()) for one in found[1].split(","))
                extras.setdefault(name, set()).update(wanted)
    for _ in range(_ROUNDS):
        before = sum(map(len, extras.values()))
        for name, needs in requires.items():
            for one in needs:
                if one.extra is None or one.extra in extras.get(name, ()):
                    extras.setdefault(one.name, set()).update(one.extras)
        if sum(map(len, extras.values())) == before:
            break
    return extras


def _line_edges(asked: Mapping[str, list[str]], lines: Mapping[str, str]) -> Iterator[Edge]:
    for name, askers in asked.items():
        for line in askers:
            yield Edge("asks", f"line:{line}", node_id(name), text=lines.get(line, ""))


def _edges(
    requires: Mapping[str, tuple[_Requires, ...]],
    extras: Mapping[str, set[str]],
    via: Mapping[str, tuple[str, ...]],
) -> Iterator[Edge]:
    """Who requires whom: from metadata, and from the lock what metadata does not show."""
    told: set[tuple[str, str]] = set()
    lines_of: dict[tuple[str, str], list[_Requires]] = {}
    for name, needs in requires.items():
        for one in needs:
            lines_of.setdefault((name, one.name), []).append(one)
    for (name, wanted), several in lines_of.items():
        # Of several lines the one with the fewest conditions is the reason.
        one = min(
            several, key=lambda item: (not _active(item, extras.get(name, ())), item.extra or "")
        )
        active = _active(one, extras.get(name, ())) or name in via.get(wanted, ())
        if name == wanted:
            continue  # `acme[all]` requires `acme[a,b]`: extras of its own.
        told.add((name, wanted))
        condition = one.marker if one.extra is None else f"extra {one.extra}"
        yield Edge(
            "requires",
            node_id(name),
            node_id(wanted),
            text=one.line.partition(";")[0].strip(),
            condition=condition,
            certain=active,
        )
    for wanted, askers in via.items():
        for name in askers:
            if name in via and (name, wanted) not in told:
                yield Edge("requires", node_id(name), node_id(wanted), text="the lock says so")


def _active(one: _Requires, extras: Iterable[str]) -> bool:
    return one.extra is None or one.extra in extras


def _tops(
    installed: list[Distribution], edges: Iterable[Edge], nodes: Mapping[str, Node]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Distributions that were asked for by name, and those that nobody requires.

    uv, and whoever is handed a whole lock, mark everything as asked for: then that says nothing.
    Where marks do say something, what has none was brought by somebody, if only for an extra.
    """
    required: dict[str, bool] = {}
    for edge in edges:
        if edge.kind == "requires":
            required[edge.target] = required.get(edge.target, False) or edge.certain
    groups: dict[str | None, list[Distribution]] = {}
    for one in installed:
        groups.setdefault(one.installer, []).append(one)
    asked = {node_id(one.name) for one in installed if one.direct_url}
    brought = set[str]()
    for group in groups.values():
        marked = {node_id(one.name) for one in group if one.requested}
        others = {node_id(one.name) for one in group} - marked
        if marked and (others or not any(one in required for one in marked)):
            asked |= marked
            brought |= others
    free = {
        id
        for id in map(node_id, nodes)
        if not required.get(id, False) and not (id in required and id in brought)
    }
    return tuple(sorted(asked)), tuple(sorted(free))
