"""Graph of the findings in a saved report, for images that are gone.

A report has findings, with evidence and chains. It lacks everything that no rule objected to, and
search rules, symbols and layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.commands.why.files import file_id, library_id
from buildmatrix.inventory.names import distribution_name
from buildmatrix.reports.why.model import Edge, EdgeKind, Embedded, Graph, Node, NodeKind, node_id
from buildmatrix.rules.model import Finding

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
        static = item.kind == "static"
        name, _, marks = item.detail.partition(" (") if static else (item.backend, "", "")
        section = None if static else item.detail.partition(":")[0]
        copy = Embedded(
            item.kind, item.vendor, item.backend, name, section, item.offset, item.size,
            item.architectures, tuple(filter(None, marks.rstrip(")").split(", "))), path=item.path,
        )  # fmt: skip
        id = f"embedded:{item.backend}:{item.detail}:{item.path}"
        label = f"{name}, linked statically" if static else f"device code: {item.backend} {section}"
        names = (name, f"lib{name}") if static else ()
        owner = self._nodes[holder].owner
        self._node(Node(id, "embedded", label, item.size, owner, names=names, embedded=copy))
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
