"""A whole tree as one picture: a box for each distribution, and who links or opens whose libraries.

Every binary links the C library, and most some more of the system: those would be all that one
sees. So the system's own libraries are left out, unless they are a vendor's. Names that no file has
and that only one distribution asks for are one box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import count, listing, size
from buildmatrix.reports.drawings.drawing import MOST_BOXES, Arrow, Box, Drawing, known_arrows
from buildmatrix.reports.why import words
from buildmatrix.reports.why.graph import LINKS, Edge, Graph, Node

#: A name that no file has and that so many distributions link is the system's.
COMMON = 3
#: Boxes from which on distributions that are alike become one, and how many that takes.
CROWDED, _ALIKE = 60, 3
#: Lines that are shown when somebody points at a box or an arrow.
_TITLE_LINES = 40
_SYSTEM = "system"


@dataclass(slots=True)
class _BoxNodes:
    """The nodes of one box."""

    kind: str
    label: str
    nodes: list[Node] = field(default_factory=list)


def of_libraries(source: str, graph: Graph, evidence: Iterable[Evidence] = ()) -> Drawing:
    """The picture of a whole tree; `evidence` says which files and names are a vendor's."""
    grouping = _Grouping(graph, evidence)
    groups: dict[str, _BoxNodes] = {}
    for node in graph.nodes.values():
        key = grouping.of(node)
        if key is not None:
            groups.setdefault(key, grouping.group(key, node)).nodes.append(node)
    joined: dict[tuple[str, str], list[Edge]] = {}
    for edge in graph.edges:
        if edge.kind in ("asks", "requires", "holds", "embeds"):
            continue
        source_key = grouping.of(graph.nodes[edge.source])
        target_key = grouping.of(graph.nodes[edge.target])
        if source_key and target_key and source_key != target_key:
            # A name in data that no file has says too little for a picture of everything.
            if not edge.certain and graph.nodes[edge.target].kind == "library":
                continue
            joined.setdefault((source_key, target_key), []).append(edge)
    kept = {key for ends in joined for key in ends}
    for key, group in groups.items():
        if group.kind != "library" and any(n.kind in ("file", "embedded") for n in group.nodes):
            kept.add(key)
    boxes = [_box(key, groups[key], graph) for key in sorted(kept)]
    left = sum(group.kind == "distribution" and key not in kept for key, group in groups.items())
    title = f"libraries of {source}"
    if left:
        title += f"; {count(left, 'distribution')} without any left out"
    arrows = [_arrow(ends, edges) for ends, edges in sorted(joined.items())]
    if len(boxes) > CROWDED:
        boxes, arrows = _merged(boxes, arrows, groups)
    if len(boxes) > MOST_BOXES:
        title += f"; only {MOST_BOXES} of {len(boxes)} boxes are shown"
    boxes = boxes[:MOST_BOXES]
    return Drawing(title, tuple(boxes), tuple(known_arrows(arrows, boxes)))


def _merged(
    boxes: list[Box], arrows: list[Arrow], groups: Mapping[str, _BoxNodes]
) -> tuple[list[Box], list[Arrow]]:
    """Boxes that are alike are one: same neighbors, and no code of a vendor.

    First names that no file has, which makes more distributions alike.
    """
    for kind in ("library", "distribution"):
        boxes, arrows = _merged_kind(kind, boxes, arrows, groups)
    return boxes, arrows


def _merged_kind(
    kind: str, boxes: list[Box], arrows: list[Arrow], groups: Mapping[str, _BoxNodes]
) -> tuple[list[Box], list[Arrow]]:
    out: dict[str, set[str]] = {}
    into: dict[str, set[str]] = {}
    for arrow in arrows:
        out.setdefault(arrow.source, set()).add(arrow.target)
        into.setdefault(arrow.target, set()).add(arrow.source)
    alike: dict[tuple[frozenset[str], frozenset[str]], list[Box]] = {}
    for box in boxes:
        if box.kind == kind and not any(n.embedded for n in groups[box.id].nodes):
            key = frozenset(out.get(box.id, ())), frozenset(into.get(box.id, ()))
            alike.setdefault(key, []).append(box)
    gone: set[str] = set()
    made: list[Box] = []
    for number, same in enumerate(alike.values()):
        if len(same) < _ALIKE:
            continue
        keys = [box.id for box in same]
        made.append(_together(f"alike:{kind}:{number}", same, groups))
        gone.update(keys)
        arrows = _joined(arrows, frozenset(keys), made[-1].id)
    return [*(box for box in boxes if box.id not in gone), *made], arrows


def _together(id: str, same: list[Box], groups: Mapping[str, _BoxNodes]) -> Box:
    nodes = [node for box in same for node in groups[box.id].nodes]
    if same[0].kind == "library":
        names = sorted(node.label for node in nodes)
        lines = (f"{len(names)} names", same[0].label[1], listing(names, 2))
        return Box(id, "library", lines, _lines(names))
    bytes_ = sum(node.size for node in nodes if node.kind == "file")
    names = [box.label[0] for box in same]
    lines = (f"{len(same)} distributions", f"{size(bytes_)} in libraries", listing(names, 2))
    return Box(id, "distribution", lines, "\n".join(names))


def _joined(arrows: list[Arrow], keys: frozenset[str], id: str) -> list[Arrow]:
    """The arrows, with `id` in the place of all boxes of `keys`; several between two are one."""
    by_ends: dict[tuple[str, str], list[Arrow]] = {}
    for arrow in arrows:
        ends = (
            id if arrow.source in keys else arrow.source,
            id if arrow.target in keys else arrow.target,
        )
        by_ends.setdefault(ends, []).append(arrow)
    return [
        Arrow(
            *ends,
            listing(dict.fromkeys(item.label for item in several), 1),
            _lines(line for item in several for line in item.title.split("\n")),
            any(item.certain for item in several),
        )
        for ends, several in by_ends.items()
    ]


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(list(dict.fromkeys(texts))[:_TITLE_LINES])


class _Grouping:
    """Which box a node belongs to."""

    def __init__(self, graph: Graph, evidence: Iterable[Evidence]) -> None:
        self._graph = graph
        self._files: dict[str, str] = {}
        self._names = set[str]()
        for item in evidence:
            if item.kind in ("bundled", "tool", "device-code"):
                self._files.setdefault(item.path, item.backend)
            elif item.kind == "needed":
                self._names.add(item.detail)
        self._askers: Mapping[str, set[str]] = self._linking()

    def _linking(self) -> dict[str, set[str]]:
        """Name that no file has → distributions (and others) that link it."""
        askers: dict[str, set[str]] = {}
        for edge in self._graph.edges:
            if edge.kind in LINKS and self._graph.nodes[edge.target].kind == "library":
                source = self._graph.nodes[edge.source]
                askers.setdefault(edge.target, set()).add(source.owner or _SYSTEM)
        return askers

    def of(self, node: Node) -> str | None:
        """Key of the box; None for what is left out."""
        if node.kind == "line":
            return None
        if node.kind == "distribution":
            return node.id
        if node.kind == "library":
            askers = self._askers.get(node.id, set())
            if node.label in self._names:
                return node.id
            if not askers or len(askers) >= COMMON or askers == {_SYSTEM}:
                return None
            return f"names:{min(askers)}" if len(askers) == 1 else node.id
        if node.owner is not None:
            return node.owner
        path = node.embedded.path if node.embedded is not None else node.label
        backend = node.embedded.backend if node.embedded is not None else self._files.get(path)
        return None if backend is None else f"{_SYSTEM}:{backend}"

    def group(self, key: str, node: Node) -> _BoxNodes:
        """An empty box of this key, of which `node` will be the first."""
        if key.startswith(f"{_SYSTEM}:"):
            return _BoxNodes("system", f"of no distribution: {key.partition(':')[2]}")
        if key.startswith("names:"):
            return _BoxNodes("library", "")
        owner = self._graph.nodes.get(key)
        return _BoxNodes(
            owner.kind if owner is not None else node.kind, owner.label if owner else key
        )


def _box(key: str, group: _BoxNodes, graph: Graph) -> Box:
    names = sorted(node.label for node in group.nodes if node.kind in ("file", "library"))
    title = _lines(names)
    if group.kind == "library":
        where = "no file has this name" if graph.is_root else "not in this tree"
        if all(node.text for node in group.nodes):
            where = "of the host's driver"
        head = names[0] if len(names) == 1 else f"{len(names)} names"
        lines = [head, where] if len(names) == 1 else [head, where, listing(names, 2)]
        return Box(key, "library", tuple(lines), title)
    files = [node for node in group.nodes if node.kind == "file"]
    lines = [group.label]
    if files:
        lines.append(f"{count(len(files), 'file')}, {size(sum(node.size for node in files))}")
    copies = sorted({node.embedded.backend for node in group.nodes if node.embedded is not None})
    if copies:
        lines.append(f"holds code for {', '.join(copies)}")
    return Box(key, group.kind, tuple(lines), title)


def _arrow(ends: tuple[str, str], edges: list[Edge]) -> Arrow:
    links = sorted({edge.text for edge in edges if edge.kind in LINKS})
    opens = {edge.target for edge in edges if edge.kind not in LINKS and edge.kind != "imports"}
    parts = []
    if links:
        parts.append(links[0] if len(links) == 1 else f"{len(links)} NEEDED")
    if opens:
        parts.append(f"may open {len(opens)}")
    if not parts:
        parts.append("imports")
    title = _lines(words.reason(edge) for edge in edges)
    return Arrow(*ends, ", ".join(parts), title, any(edge.certain for edge in edges))
