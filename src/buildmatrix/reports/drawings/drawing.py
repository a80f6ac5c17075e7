"""Boxes and arrows of a graph, whatever the format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.reports.why import words
from buildmatrix.reports.why.graph import Edge, Node
from buildmatrix.reports.why.model import Answer, Chain
from buildmatrix.text import each_text, shown

#: Boxes of one picture.
MOST_BOXES = 400


@dataclass(frozen=True, slots=True)
class Box:
    """One node of a picture."""

    id: str
    #: As `Node.kind`; `layer` for layers, `system` for files that no distribution owns.
    kind: str
    #: Lines of text.
    label: tuple[str, ...]
    #: More than fits: shown when somebody points at it.
    title: str = ""
    #: Whether it is what was asked about.
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """One edge of a picture."""

    source: str
    target: str
    #: A few words.
    label: str
    title: str = ""
    #: Drawn dashed where not: it happens only if a run makes it happen.
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture, its parts in a fixed order."""

    schema: Literal["buildmatrix/graph/1"] = field(default="buildmatrix/graph/1", kw_only=True)
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def of_answer(answer: Answer) -> Drawing:
    """The chains of an answer, with the layers that their files lie in."""
    graph = answer.graph
    chains: list[Chain] = []
    for subject in answer.subjects:
        chains += subject.chains
        if subject.brought is not None:
            chains.append(subject.brought)
    subject_ids = {subject.node.id for subject in answer.subjects}
    ids = dict.fromkeys([*(id for chain in chains for id in chain.ids), *subject_ids])
    drawn = list(ids)[:MOST_BOXES]
    edges = dict.fromkeys(edge for chain in chains for edge in chain.edges)
    boxes = [_box(graph.nodes[id], id in subject_ids) for id in drawn]
    arrows = [_arrow(edge) for edge in edges if edge.source in ids and edge.target in ids]
    layers: dict[int, Box] = {}
    for id in drawn:
        index = graph.nodes[id].layer
        text = words.layer(graph, graph.nodes[id])
        if index is not None and text is not None and id in subject_ids:
            layers[index] = Box(f"layer:{index}", "layer", (f"layer {index + 1}",), text)
            arrows.append(Arrow(id, f"layer:{index}", "put there by", text))
    title = f"why {answer.question.text} in {answer.source}"
    everything = (*boxes, *layers.values())
    return without_secrets(Drawing(title, everything, tuple(known_arrows(arrows, everything))))


def without_secrets(drawing: Drawing) -> Drawing:
    """The drawing as it may be shown; in a picture an address may be cut into lines."""
    return each_text(drawing, shown)


def known_arrows(arrows: Iterable[Arrow], boxes: Iterable[Box]) -> list[Arrow]:
    """The arrows whose both ends are among `boxes`."""
    ids = {box.id for box in boxes}
    return [arrow for arrow in arrows if arrow.source in ids and arrow.target in ids]


def _box(node: Node, is_subject: bool) -> Box:
    label = node.label
    if node.kind in ("file", "python"):
        folder, _, name = label.rpartition("/")
        lines = (name, _tail(folder)) if folder else (name,)
    elif node.kind == "line":
        lines = (label, node.text) if node.text else (label,)
    elif node.embedded is not None:
        lines = (label, f"in {node.embedded.path.rpartition('/')[2]}")
    else:
        lines = (label,)
    return Box(node.id, node.kind, lines, label, is_subject)


def _tail(folder: str) -> str:
    """The end of a folder: behind site-packages, where it lies below one."""
    for site in ("/site-packages/", "/dist-packages/"):
        at = f"/{folder}/".rfind(site)
        if at >= 0:
            return f"/{folder}/"[at + len(site) :].rstrip("/")
    return folder


_VERBS = {
    "asks": "asks for",
    "requires": "requires",
    "holds": "holds",
    "needs": "NEEDED",
    "preloads": "preloads",
    "dlopen": "may dlopen",
    "dlopen-note": "may dlopen",
    "python": "opens",
    "imports": "imports",
    "embeds": "embeds",
}


def _arrow(edge: Edge) -> Arrow:
    return Arrow(edge.source, edge.target, verb(edge), words.reason(edge), edge.certain)


def verb(edge: Edge) -> str:
    """A few words for an edge: `NEEDED, RUNPATH`."""
    if edge.kind == "needs":
        rule = words.RULES.get(edge.rule or "", "not found")
        return f"NEEDED, {rule}"
    if edge.kind == "requires" and edge.condition:
        return f"requires ({edge.condition})" if len(edge.condition) < 30 else "requires (marker)"
    return _VERBS[edge.kind]
