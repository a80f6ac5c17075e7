"""One graph of an inventory, its resolution and its lock, or of a saved report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence, demangle
from buildmatrix.commands.why_files import build_file_graph, file_id, library_id
from buildmatrix.commands.why_packages import build_package_graph, find_import_edges
from buildmatrix.facts.elf.model import Section
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution
from buildmatrix.judge.model import Finding
from buildmatrix.locks.model import Lock
from buildmatrix.reports.why import Edge, EdgeKind, Embedded, Graph, Node, NodeKind, node_id

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
        equivalents=catalogue.conda if catalogue is not None else {},
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
    graph = Graph(
        nodes,
        tuple(edges),
        (*half.roots, rest.loose),
        layers=inventory.layers,
        buried=inventory.buried,
        is_root=resolution.is_root,
        notes=half.notes,
    )
    # Last, nodes that no root leads to: rings of distributions, or of libraries.
    ahead = [root for group in graph.roots for root in group]
    seen = set(ahead)
    for id in ahead:  # grows during the loop
        new = {edge.target: None for edge in graph.out.get(id, ()) if edge.target not in seen}
        seen.update(new)
        ahead += new
    unreached = tuple(sorted(id for id in nodes if id not in seen))
    return replace(graph, roots=(*graph.roots, unreached))


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


# Foreign code inside files: statically linked, or for a device


def find_embedded(
    evidence: Iterable[Evidence], catalogue: Catalogue, inventory: Inventory
) -> tuple[list[Node], list[Edge]]:
    """Return a node for each copy in the evidence, below the file that holds it."""
    sections = {binary.path: binary.elf.sections for binary in inventory.binaries}
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    shared = {owned.entry.name: owned.entry.shared for owned in catalogue.static}
    for item in evidence:
        if item.kind not in ("static", "device-code"):
            continue
        name, _ = _split_name(item)
        id = f"embedded:{item.backend}:{name}:{item.path}"
        if id in nodes:
            continue
        names = [name, *(glob.partition("*")[0].rstrip(".") for glob in shared.get(name, ()))]
        nodes[id] = replace(
            _make_embedded(item, id, name, _find_section(item, sections)),
            layer=inventory.origins.get(item.path),
            owner=item.distribution and node_id(item.distribution.partition("==")[0]),
            names=tuple(names) if item.kind == "static" else (),
        )
        edges.append(Edge("embeds", file_id(item.path), id, item.detail, offset=item.offset))
    return list(nodes.values()), edges


def _make_embedded(item: Evidence, id: str, name: str, section: str | None) -> Node:
    """Return the node of a copy, or of device code, without what depends on its file."""
    title, marks = _split_name(item)
    copy = Embedded(
        item.kind, item.vendor, item.backend, name, section, item.offset, item.size,
        item.architectures, marks, path=item.path,
    )  # fmt: skip
    label = f"{title}, linked statically" if item.kind == "static" else f"device code: {title}"
    return Node(id, "embedded", label, item.size, embedded=copy)


def _split_name(item: Evidence) -> tuple[str, tuple[str, ...]]:
    """Split evidence text into name and marks: `cudart (mark, mark)`."""
    if item.kind == "static":
        name, _, marks = item.detail.partition(" (")
        return name, tuple(filter(None, marks.rstrip(")").split(", ")))
    return f"{item.backend} {item.detail.partition(':')[0]}", ()


def _find_section(item: Evidence, sections: Mapping[str, tuple[Section, ...]]) -> str | None:
    """Return the section of device code, or of the first mark of a copy."""
    if item.kind != "static":
        return item.detail.partition(":")[0]
    if item.offset is None:
        return None
    return next(
        (
            section.name
            for section in sections.get(item.path, ())
            if not section.nobits and section.offset <= item.offset < section.offset + section.size
        ),
        None,
    )


# From a saved report, for images that are gone.
#
# A report has findings, with evidence and chains. It lacks everything that no rule objected to, and
# search rules, symbols and layers.


#: Note in every answer from a report.
NOTE = (
    "a report says what rules found: what no rule objected to, by which rule the loader finds a "
    "file, its symbols and its layer are not in it"
)
_LINE = re.compile(r"\S.*:\d+")
_DISTRIBUTION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*) (\S+)")
_KINDS: dict[str, EdgeKind] = {"needed": "needs", "dlopen": "dlopen", "python-dlopen": "python"}


def make_findings_graph(findings: Iterable[Finding]) -> tuple[Graph, tuple[Evidence, ...]]:
    """Return the graph of all findings together, and their evidence without duplicates."""
    all_findings = tuple(findings)
    everything = dict.fromkeys(item for finding in all_findings for item in finding.evidence)
    builder = _FindingGraphBuilder(tuple(everything))
    for finding in all_findings:
        builder.chain(finding.chain)
    return builder.graph(), tuple(everything)


class _FindingGraphBuilder:
    def __init__(self, evidence: tuple[Evidence, ...]) -> None:
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str, str], Edge] = {}
        #: File name to the node of a file with that name, the target of links.
        self._files: dict[str, str] = {}
        for item in evidence:
            if item.kind in ("bundled", "tool"):
                name = item.path.rpartition("/")[2]
                self._files.setdefault(name, file_id(item.path))
                self._files.setdefault(demangle(name), file_id(item.path))
        for item in evidence:
            self._evidence(item)

    def graph(self) -> Graph:
        edges = tuple(self._edges.values())
        led_to = {edge.target for edge in edges}
        free = [node for node in self._nodes.values() if node.id not in led_to]
        lines, distributions, rest = (
            tuple(sorted(node.id for node in free if node.kind in kinds))
            for kinds in (("line",), ("distribution",), ("file", "python", "library", "embedded"))
        )
        roots = (lines, (), distributions, rest)
        return Graph(dict(self._nodes), edges, roots, is_partial=True, notes=(NOTE,))

    def chain(self, parts: Iterable[str]) -> None:
        """Add the steps down to the last distribution; evidence has the rest."""
        before: Node | None = None
        for part in parts:
            if before is None and _LINE.fullmatch(part) and "/lib" not in part:
                before = self._node(Node(f"line:{part}", "line", part))
                continue
            match = _DISTRIBUTION.fullmatch(part)
            if match is None:
                return
            node = self._distribution(match[1], match[2])
            if before is not None:
                kind: EdgeKind = "asks" if before.kind == "line" else "requires"
                self._edge(Edge(kind, before.id, node.id, text=match[1]))
            before = node

    def _evidence(self, item: Evidence) -> None:
        owner = None
        if item.distribution is not None:
            name, _, version = item.distribution.partition("==")
            owner = self._distribution(name, version)
        if item.kind == "declared" or not item.path:
            return
        python = item.kind == "python-dlopen"
        id = f"python:{item.path}" if python else file_id(item.path)
        size = item.size if item.kind in ("bundled", "tool") else 0
        name = item.path.rpartition("/")[2]
        holder = owner.id if owner is not None else None
        node = self._nodes.get(id)
        if node is None or size > node.size:
            names = tuple(dict.fromkeys((name, demangle(name))))
            kind: NodeKind = "python" if python else "file"
            self._nodes[id] = Node(id, kind, item.path, size, owner=holder, names=names)
        if holder is not None:
            self._edge(Edge("holds", holder, id))
        if item.kind in _KINDS:
            wanted = item.detail.rpartition("/")[2]
            target = self._files.get(wanted) or self._library(wanted)
            self._edge(
                Edge(
                    _KINDS[item.kind],
                    id,
                    target,
                    item.detail,
                    rule="report" if item.kind == "needed" else None,
                    at=item.path if python else None,
                    offset=item.offset,
                    certain=item.kind == "needed",
                )
            )
        elif item.kind in ("static", "device-code"):
            self._copy(id, item)

    def _copy(self, holder: str, item: Evidence) -> None:
        is_static = item.kind == "static"
        name = _split_name(item)[0] if is_static else item.backend
        id = f"embedded:{item.backend}:{item.detail}:{item.path}"
        node = _make_embedded(item, id, name, _find_section(item, {}))
        names = (name, f"lib{name}") if is_static else ()
        self._node(replace(node, owner=self._nodes[holder].owner, names=names))
        self._edge(Edge("embeds", holder, id, item.detail, offset=item.offset))

    def _distribution(self, name: str, version: str) -> Node:
        name = distribution_name(name)
        return self._node(Node(node_id(name), "distribution", f"{name} {version}", names=(name,)))

    def _library(self, name: str) -> str:
        names = tuple(dict.fromkeys((name, demangle(name))))
        return self._node(Node(library_id(name), "library", name, names=names)).id

    def _node(self, node: Node) -> Node:
        return self._nodes.setdefault(node.id, node)

    def _edge(self, edge: Edge) -> None:
        if edge.source != edge.target:
            self._edges.setdefault((edge.source, edge.target, edge.kind), edge)
