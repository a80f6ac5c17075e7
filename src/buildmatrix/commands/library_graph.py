"""Picture of a whole tree: a box per distribution, and arrows for linked or opened libraries.

Every binary links the C library, and most link more of the system, which would hide everything
else. So system libraries are omitted, unless they are a vendor's. Names without a file that only
one distribution uses are one box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.model import Evidence
from buildmatrix.reports import why
from buildmatrix.reports.drawings import MOST_BOXES, Arrow, Box, Drawing, select_arrows
from buildmatrix.reports.why import LINKS, Edge, Graph, Node

#: Number of distributions that must link a name without a file to make it a system library.
COMMON = 3
#: Number of boxes from which similar distributions are merged, and how many that takes.
CROWDED, _ALIKE = 60, 3
#: Lines of the tooltip of a box or an arrow.
_TITLE_LINES = 40
_SYSTEM = "system"


class _BoxNodes(Struct):
    """The nodes of one box."""

    kind: str
    label: str
    nodes: list[Node] = field(default_factory=list)


def draw_libraries(source: str, graph: Graph, evidence: Iterable[Evidence] = ()) -> Drawing:
    """Draw a whole tree; `evidence` has the vendors of files and names."""
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
            # A name in data without a file is too weak for an overview.
            if not edge.certain and graph.nodes[edge.target].kind == "library":
                continue
            joined.setdefault((source_key, target_key), []).append(edge)
    kept = {key for ends in joined for key in ends}
    for key, group in groups.items():
        if group.kind != "library" and any(n.kind in ("file", "embedded") for n in group.nodes):
            kept.add(key)
    boxes = [_make_box(key, groups[key], graph) for key in sorted(kept)]
    left = sum(group.kind == "distribution" and key not in kept for key, group in groups.items())
    title = f"libraries of {source}"
    if left:
        title += f"; {count(left, 'distribution')} without any left out"
    arrows = [_make_arrow(ends, edges) for ends, edges in sorted(joined.items())]
    # Names without a file first: merging them makes more distributions similar.
    for kind in ("library", "distribution") if len(boxes) > CROWDED else ():
        boxes, arrows = _merge_similar(kind, boxes, arrows, groups)
    if len(boxes) > MOST_BOXES:
        title += f"; only {MOST_BOXES} of {len(boxes)} boxes are shown"
    boxes = boxes[:MOST_BOXES]
    return Drawing(title, tuple(boxes), tuple(select_arrows(arrows, boxes)))


def _merge_similar(
    kind: str, boxes: list[Box], arrows: list[Arrow], groups: Mapping[str, _BoxNodes]
) -> tuple[list[Box], list[Arrow]]:
    """Merge similar boxes of a kind: same neighbors, and no vendor's code."""
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
        made.append(_make_merged_box(f"alike:{kind}:{number}", same, groups))
        gone.update(keys)
        arrows = _redirect_arrows(arrows, frozenset(keys), made[-1].id)
    return [*(box for box in boxes if box.id not in gone), *made], arrows


def _make_merged_box(id: str, same: list[Box], groups: Mapping[str, _BoxNodes]) -> Box:
    nodes = [node for box in same for node in groups[box.id].nodes]
    if same[0].kind == "library":
        names = sorted(node.label for node in nodes)
        lines = (f"{len(names)} names", same[0].label[1], listing(names, 2))
        return Box(id, "library", lines, _join_lines(names))
    bytes_ = sum(node.size for node in nodes if node.kind == "file")
    names = [box.label[0] for box in same]
    lines = (f"{len(same)} distributions", f"{size(bytes_)} in libraries", listing(names, 2))
    return Box(id, "distribution", lines, "\n".join(names))


def _redirect_arrows(arrows: list[Arrow], keys: frozenset[str], id: str) -> list[Arrow]:
    """Replace all boxes of `keys` with `id` in the arrows; parallel arrows become one."""
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
            _join_lines(line for item in several for line in item.title.split("\n")),
            any(item.certain for item in several),
        )
        for ends, several in by_ends.items()
    ]


def _join_lines(texts: Iterable[str]) -> str:
    return "\n".join(list(dict.fromkeys(texts))[:_TITLE_LINES])


class _Grouping:
    """Assigns nodes to boxes."""

    def __init__(self, graph: Graph, evidence: Iterable[Evidence]) -> None:
        self._graph = graph
        self._files: dict[str, str] = {}
        self._names = set[str]()
        for item in evidence:
            if item.kind in ("bundled", "tool", "device-code"):
                self._files.setdefault(item.path, item.backend)
            elif item.kind == "needed":
                self._names.add(item.detail)
        #: Names without a file to the distributions (and others) that link them.
        self._askers: dict[str, set[str]] = {}
        for edge in graph.edges:
            if edge.kind in LINKS and graph.nodes[edge.target].kind == "library":
                owner = graph.nodes[edge.source].owner
                self._askers.setdefault(edge.target, set()).add(owner or _SYSTEM)

    def of(self, node: Node) -> str | None:
        """Return the key of a node's box; None if it is omitted."""
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
        """Return an empty box of this key, for `node` as its first."""
        if key.startswith(f"{_SYSTEM}:"):
            return _BoxNodes("system", f"of no distribution: {key.partition(':')[2]}")
        if key.startswith("names:"):
            return _BoxNodes("library", "")
        owner = self._graph.nodes.get(key)
        return _BoxNodes(
            owner.kind if owner is not None else node.kind, owner.label if owner else key
        )


def _make_box(key: str, group: _BoxNodes, graph: Graph) -> Box:
    names = sorted(node.label for node in group.nodes if node.kind in ("file", "library"))
    title = _join_lines(names)
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


def _make_arrow(ends: tuple[str, str], edges: list[Edge]) -> Arrow:
    links = sorted({edge.text for edge in edges if edge.kind in LINKS})
    opens = {edge.target for edge in edges if edge.kind not in LINKS and edge.kind != "imports"}
    parts = []
    if links:
        parts.append(links[0] if len(links) == 1 else f"{len(links)} NEEDED")
    if opens:
        parts.append(f"may open {len(opens)}")
    if not parts:
        parts.append("imports")
    title = _join_lines(why.reason(edge) for edge in edges)
    return Arrow(*ends, ", ".join(parts), title, any(edge.certain for edge in edges))
