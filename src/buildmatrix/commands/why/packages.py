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

from buildmatrix.commands.why.requires import requirement_edges
from buildmatrix.inventory.model import Distribution, PythonImport, SystemPackage
from buildmatrix.locks.model import Lock
from buildmatrix.locks.requires import metadata_of, requested_extras, requirements
from buildmatrix.reports.why.graph import Edge, Node, node_id


@dataclass(frozen=True, slots=True)
class Packages:
    """The package half of a graph."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    #: As `Graph.roots`, the first three.
    roots: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


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
    of_system = {system_package.name: system_package for system_package in system}
    nodes: dict[str, Node] = {}
    for item in installed:
        nodes.setdefault(item.name, _installed(item, origins.get(item.path), of_system, packaged))
    notes: list[str] = []
    locked = {}
    for package in lock.packages if lock is not None else ():
        child = nodes.get(package.name)
        if child is None:
            nodes[package.name] = Node(
                node_id(package.name),
                "distribution",
                f"{package.name} {package.version}".rstrip(),
                names=(package.name,),
                text="not installed: it is only in the lock" if installed else "",
            )
        elif child.label != f"{package.name} {package.version}":
            notes.append(
                f"the lock has {package.name} {package.version}, installed is {child.label}"
            )
        locked[package.name] = package
    lines_naming = {
        name: [asker for asker in package.via if asker not in locked]
        for name, package in locked.items()
    }
    requires = {
        name: tuple(requirements(lines_of, nodes, environment))
        for name, lines_of in metadata_of(installed).items()
    }
    extras = requested_extras(requires, lines_naming, lines)
    edges = [
        *_line_edges(lines_naming, lines),
        *requirement_edges(
            requires, extras, {name: package.via for name, package in locked.items()}
        ),
    ]
    line_nodes = [
        Node(f"line:{line}", "line", line, text=lines.get(line, ""))
        for line in sorted({line for names in lines_naming.values() for line in names})
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
            how.append(f"apparently the system's package {package.name} {package.version}")
        how.append("has no RECORD, so its files are not known")
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


def imports(statements: Iterable[PythonImport], edges: Iterable[Edge]) -> Iterator[Edge]:
    """Imports of another distribution's modules, where no requirement in `edges` says so."""
    seen = {(edge.source, edge.target) for edge in edges if edge.kind == "requires"}
    for imported in statements:
        if imported.provider is None:
            continue
        ends = (
            node_id(imported.owner.partition("==")[0]),
            node_id(imported.provider.partition("==")[0]),
        )
        if ends[0] == ends[1] or ends in seen:
            continue
        seen.add(ends)
        # It says what is loaded together, and not why anything was installed.
        yield Edge(
            "imports", *ends, imported.module, at=f"{imported.path}:{imported.line}", certain=False
        )


def _line_edges(lines_naming: Mapping[str, list[str]], lines: Mapping[str, str]) -> Iterator[Edge]:
    for name, askers in lines_naming.items():
        for line in askers:
            yield Edge("asks", f"line:{line}", node_id(name), text=lines.get(line, ""))


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
    for distribution in installed:
        groups.setdefault(distribution.installer, []).append(distribution)
    requested = {node_id(item.name) for item in installed if item.direct_url}
    brought = set[str]()
    for group in groups.values():
        marked = {node_id(item.name) for item in group if item.requested}
        others = {node_id(item.name) for item in group} - marked
        if marked and (others or not any(id in required for id in marked)):
            requested |= marked
            brought |= others
    free = {
        id
        for id in map(node_id, nodes)
        if not required.get(id, False) and not (id in required and id in brought)
    }
    return tuple(sorted(requested)), tuple(sorted(free))
