"""Package half of the graph: requirement lines, distributions, and requirements.

Two sources complement each other. A lock has the requirers (its `via`), from requirement lines on.
Installed metadata has markers and extras (`Requires-Dist`, PEP 508), and distributions requested by
name (REQUESTED of PEP 376, PEP 610).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.facts.inventory.model import Distribution, PythonImport, SystemPackage
from buildmatrix.locks.conda_requests import chain_packages
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.requires import Requires, metadata_of, requested_extras, requirements
from buildmatrix.reports.why import Edge, Node, node_id


class PackageGraph(Struct, frozen=True):
    """The package half of a graph."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    #: The first three of `Graph.roots`.
    roots: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def build_package_graph(
    distributions: Iterable[Distribution],
    lock: Lock | None,
    lines: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    origins: Mapping[str, int] = MappingProxyType({}),
    system: Iterable[SystemPackage] = (),
    packaged: Mapping[str, str] = MappingProxyType({}),
    equivalents: Mapping[str, str] = MappingProxyType({}),
) -> PackageGraph:
    """Join the data of a lock and of installed metadata about the same distributions.

    `lines` has the text of requirement lines by `file:line`; `environment` the values of markers
    (PEP 508); `origins` the layers of metadata folders; `system` the packages of the system's
    package manager, and `packaged` the package that lists a metadata folder; `equivalents` are as
    for `chain_packages`. A distribution that exists twice is one node, with the requirements of
    both.
    """
    installed = list(distributions)
    of_system = {system_package.name: system_package for system_package in system}
    nodes: dict[str, Node] = {}
    for item in installed:
        nodes.setdefault(item.name, _make_node(item, origins.get(item.path), of_system, packaged))
    notes: list[str] = []
    locked = {}
    for package in _locked_packages(lock, installed, equivalents) if lock is not None else ():
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
    for item in installed:
        if item.lines:
            lines_naming.setdefault(item.name, []).extend(line.place for line in item.lines)
    in_tree = {line.place: line.text for item in installed for line in item.lines}
    lines = {**lines, **in_tree}
    requires = {
        name: tuple(requirements(lines_of, nodes, environment))
        for name, lines_of in metadata_of(installed).items()
    }
    extras = requested_extras(requires, lines_naming, lines)
    edges = [
        *(
            Edge("asks", f"line:{line}", node_id(name), text=lines.get(line, ""))
            for name, askers in lines_naming.items()
            for line in askers
        ),
        *make_requirement_edges(
            requires, extras, {name: package.via for name, package in locked.items()}
        ),
    ]
    line_nodes = [
        Node(f"line:{line}", "line", line, text=lines.get(line, ""))
        for line in sorted({line for names in lines_naming.values() for line in names})
    ]
    return PackageGraph(
        (*line_nodes, *(nodes[name] for name in sorted(nodes))),
        tuple(edges),
        (tuple(node.id for node in line_nodes), *_find_roots(installed, edges, nodes)),
        tuple(notes),
    )


def _locked_packages(
    lock: Lock, installed: Iterable[Distribution], equivalents: Mapping[str, str]
) -> Iterator[Package]:
    """Yield the packages of a lock; those of conda as they are installed, or not at all."""
    yield from lock.packages
    versions = {item.name: item.version for item in installed}
    chained = chain_packages(lock, equivalents)
    names = {package.name: name for name, package in chained.items() if name in versions}
    for package in lock.conda:
        if name := names.get(package.name):
            askers = (
                names.get(asker, asker)
                for asker in package.via
                if asker in names or not asker.startswith(CONDA_PREFIX)
            )
            yield replace(package, name=name, version=versions[name], via=tuple(askers))


def _make_node(
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
        package = None if item.path in packaged else _find_system_package(item, system)
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


def _find_system_package(
    item: Distribution, system: Mapping[str, SystemPackage]
) -> SystemPackage | None:
    """Return the dpkg or apk package with the name and version of a distribution.

    Debian policy for Python, 3.3: `python3-foo` has the import package `foo`; Alpine has `py3-foo`.
    Versions are compared without epoch and revision.
    """
    for name in (f"python3-{item.name}", f"py3-{item.name}", item.name):
        package = system.get(name)
        if package is not None:
            upstream = package.version.rpartition(":")[2]
            if re.match(rf"{re.escape(item.version)}(?![0-9.])", upstream):
                return package
    return None


def find_import_edges(statements: Iterable[PythonImport], edges: Iterable[Edge]) -> Iterator[Edge]:
    """Yield imports between distributions without a requirement in `edges`."""
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
        # It explains loading, but not installation.
        yield Edge(
            "imports", *ends, imported.module, at=f"{imported.path}:{imported.line}", certain=False
        )


def _find_roots(
    installed: list[Distribution], edges: Iterable[Edge], nodes: Mapping[str, Node]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return distributions requested by name, and those that nothing requires.

    uv, and installers of a whole lock, mark everything as requested, which is then ignored. If
    marks are meaningful, an unmarked distribution was brought by another, if only for an extra.
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


# Requirements


def make_requirement_edges(
    requires: Mapping[str, tuple[Requires, ...]],
    extras: Mapping[str, set[str]],
    via: Mapping[str, tuple[str, ...]],
) -> Iterator[Edge]:
    """Yield requirements from metadata, and those only in the lock."""
    #: The line with the fewest conditions is the reason.
    reasons: dict[tuple[str, str], tuple[bool, str, Requires]] = {}
    for name, needs in requires.items():
        for need in needs:
            lacks_extra = need.extra is not None and need.extra not in extras.get(name, ())
            reason = lacks_extra, need.extra or "", need
            earlier = reasons.setdefault((name, need.name), reason)
            if reason[:2] < earlier[:2]:
                reasons[name, need.name] = reason
    for (name, wanted), (lacks_extra, _, need) in reasons.items():
        if name == wanted:
            continue  # `acme[all]` requires `acme[a,b]`, which are its own extras.
        condition = need.marker if need.extra is None else f"extra {need.extra}"
        yield Edge(
            "requires",
            node_id(name),
            node_id(wanted),
            text=need.line.partition(";")[0].strip(),
            condition=condition,
            certain=not lacks_extra or name in via.get(wanted, ()),
        )
    for wanted, askers in via.items():
        for name in askers:
            if name in via and ((name, wanted) not in reasons or name == wanted):
                yield Edge("requires", node_id(name), node_id(wanted), text="the lock says so")
