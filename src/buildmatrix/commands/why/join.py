"""Inventory, resolution and lock → one graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.embedded import embedded
from buildmatrix.commands.why.files import files, library_id
from buildmatrix.commands.why.packages import imports, packages
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Resolution
from buildmatrix.locks.model import Lock
from buildmatrix.reports.why.graph import Edge, Graph, Node

#: What is said of a library that no image should have.
OF_THE_HOST = "a part of the host's driver, which the container runtime mounts"
_PYTHON = re.compile(r"python(3\.\d+)")


def join(
    inventory: Inventory,
    resolution: Resolution,
    evidence: Iterable[Evidence] = (),
    catalogue: Catalogue | None = None,
    lock: Lock | None = None,
    lines: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] | None = None,
) -> Graph:
    """Everything that is known of one tree, as one graph.

    `lines` has the text of the requirement lines that the lock names, by `file:line`.
    `environment` has values of environment markers (PEP 508) that are known better than the tree
    says, which is its own interpreter on Linux.
    """
    markers = {**_markers(inventory), **(environment or {})}
    half = packages(
        inventory.distributions,
        lock,
        lines,
        markers,
        origins=inventory.origins,
        system=inventory.system_packages,
        packaged=inventory.packaged,
    )
    between = (*half.edges, *imports(inventory.python_imports, half.edges))
    rest = files(inventory, resolution, between)
    nodes = {node.id: node for node in (*half.nodes, *rest.nodes)}
    items = tuple(evidence)
    for id in {library_id(item.detail) for item in items if item.where == "host"} & nodes.keys():
        nodes[id] = replace(nodes[id], text=OF_THE_HOST)
    all_edges = (*between, *rest.edges)
    edges = [edge for edge in all_edges if edge.source in nodes and edge.target in nodes]
    if catalogue is not None:
        copies, embeds = embedded(items, catalogue, inventory)
        nodes.update((node.id, node) for node in copies)
        edges += [edge for edge in embeds if edge.source in nodes]
    roots = (*half.roots, rest.loose)
    return Graph(
        nodes,
        tuple(edges),
        (*roots, _unreached(nodes, edges, roots)),
        layers=inventory.layers,
        buried=inventory.buried,
        is_root=resolution.is_root,
        notes=half.notes,
    )


def _unreached(
    nodes: Mapping[str, Node], edges: Iterable[Edge], roots: Iterable[Iterable[str]]
) -> tuple[str, ...]:
    """What no root leads to: rings of distributions, or of libraries, that hold each other."""
    out: dict[str, list[str]] = {}
    for edge in edges:
        out.setdefault(edge.source, []).append(edge.target)
    ahead = [root for group in roots for root in group]
    seen = set(ahead)
    for id in ahead:  # grows while it is walked
        for target in out.get(id, ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return tuple(sorted(id for id in nodes if id not in seen))


def _markers(inventory: Inventory) -> dict[str, str]:
    """The environment markers of the tree's interpreter, of which nothing is executed."""
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
