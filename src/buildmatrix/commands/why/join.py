"""Join of inventory, resolution and lock to one graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.embedded import find_embedded
from buildmatrix.commands.why.files import build_file_graph, library_id
from buildmatrix.commands.why.packages import build_package_graph, find_import_edges
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Resolution
from buildmatrix.locks.model import Lock
from buildmatrix.reports.why.model import Edge, Graph, Node

#: Text for a library that no image should contain.
OF_THE_HOST = "a part of the host's driver, which the container runtime mounts"
_PYTHON = re.compile(r"python(3\.\d+)")


def join_graph(
    inventory: Inventory,
    resolution: Resolution,
    evidence: Iterable[Evidence] = (),
    catalogue: Catalogue | None = None,
    lock: Lock | None = None,
    lines: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
) -> Graph:
    """Join everything known about one tree to a graph.

    `lines` has the text of the requirement lines named in the lock, by `file:line`. `environment`
    overrides values of environment markers (PEP 508) that otherwise come from the tree: its own
    interpreter on Linux.
    """
    markers = {**_find_markers(inventory), **(environment or {})}
    half = build_package_graph(
        inventory.distributions,
        lock,
        lines,
        markers,
        origins=inventory.origins,
        system=inventory.system_packages,
        packaged=inventory.packaged,
    )
    between = (*half.edges, *find_import_edges(inventory.python_imports, half.edges))
    rest = build_file_graph(inventory, resolution, between)
    nodes = {node.id: node for node in (*half.nodes, *rest.nodes)}
    items = tuple(evidence)
    for id in {library_id(item.detail) for item in items if item.where == "host"} & nodes.keys():
        nodes[id] = replace(nodes[id], text=OF_THE_HOST)
    all_edges = (*between, *rest.edges)
    edges = [edge for edge in all_edges if edge.source in nodes and edge.target in nodes]
    if catalogue is not None:
        copies, embeds = find_embedded(items, catalogue, inventory)
        nodes.update((node.id, node) for node in copies)
        edges += [edge for edge in embeds if edge.source in nodes]
    roots = (*half.roots, rest.loose)
    return Graph(
        nodes,
        tuple(edges),
        (*roots, _find_unreached(nodes, edges, roots)),
        layers=inventory.layers,
        buried=inventory.buried,
        is_root=resolution.is_root,
        notes=half.notes,
    )


def _find_unreached(
    nodes: Mapping[str, Node], edges: Iterable[Edge], roots: Iterable[Iterable[str]]
) -> tuple[str, ...]:
    """Return nodes that no root leads to: rings of distributions, or of libraries."""
    out: dict[str, list[str]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge.target)
    ahead = [root for group in roots for root in group]
    seen = set(ahead)
    for id in ahead:  # grows during the loop
        for target in out.get(id, ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return tuple(sorted(id for id in nodes if id not in seen))


def _find_markers(inventory: Inventory) -> dict[str, str]:
    """Return the environment markers of the tree's interpreter, without executing it."""
    version = next((python_path.version for python_path in inventory.python_paths), None)
    if version is None:
        paths = (distribution.path for distribution in inventory.distributions)
        version = next((match[1] for path in paths if (match := _PYTHON.search(path))), "3.11")
    machines: dict[str, int] = {}
    for binary in inventory.binaries:
        machines[binary.elf.machine] = machines.get(binary.elf.machine, 0) + 1
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{version}.0",
        "os_name": "posix",
        "platform_machine": max(machines, key=lambda machine: machines[machine], default="x86_64"),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": "linux",
    }
