"""Drawings of graphs: boxes and arrows, rendered as Graphviz DOT and Mermaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import each_text, shown
from buildmatrix.reports import why
from buildmatrix.reports.why import Answer, Edge, Node

# Colors of boxes by kind, the same in every format. Dark text is readable on all of them


FILLS = {
    "line": "#fff3bf",
    "distribution": "#d0ebff",
    "file": "#e9ecef",
    "python": "#d3f9d8",
    "library": "#ffe3e3",
    "embedded": "#ffd8a8",
    "layer": "#e5dbff",
    "system": "#f1f3f5",
}
OTHER = "#ffffff"

#: Characters of one line of a label, in the languages whose reader draws it.
LONGEST = 120


def short(text: str, most: int = LONGEST) -> str:
    """The beginning and the end of a long text; both carry information."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


# Boxes and arrows


#: Boxes of one picture.
MOST_BOXES = 400


class Box(Struct, frozen=True):
    """One node of a picture."""

    id: str
    #: As `Node.kind`; `layer` for layers, `system` for files that no distribution owns.
    kind: str
    #: Lines of text.
    label: tuple[str, ...]
    #: More than fits: shown when somebody points at it.
    title: str = ""
    #: True if it is what was asked about.
    asked: bool = False


class Arrow(Struct, frozen=True):
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


def draw_answer(answer: Answer) -> Drawing:
    """The chains of an answer, with the layers that their files lie in."""
    graph = answer.graph
    chains = [
        chain
        for subject in answer.subjects
        for chain in (*subject.chains, subject.brought)
        if chain is not None
    ]
    subject_ids = {subject.node.id for subject in answer.subjects}
    ids = dict.fromkeys([*(id for chain in chains for id in chain.ids), *subject_ids])
    drawn = list(ids)[:MOST_BOXES]
    edges = dict.fromkeys(edge for chain in chains for edge in chain.edges)
    boxes = [_box(graph.nodes[id], id in subject_ids) for id in drawn]
    arrows = [
        Arrow(edge.source, edge.target, verb(edge), why.reason(edge), edge.certain)
        for edge in edges
    ]
    layers: dict[int, Box] = {}
    for id in drawn:
        index = graph.nodes[id].layer
        text = why.layer(graph, graph.nodes[id])
        if index is not None and text is not None and id in subject_ids:
            layers[index] = Box(f"layer:{index}", "layer", (f"layer {index + 1}",), text)
            arrows.append(Arrow(id, f"layer:{index}", "put there by", text))
    title = f"why {answer.question.text} in {answer.source}"
    everything = (*boxes, *layers.values())
    return remove_secrets(Drawing(title, everything, tuple(select_arrows(arrows, everything))))


def remove_secrets(drawing: Drawing) -> Drawing:
    """The drawing as it may be shown; in a picture an address may be cut into lines."""
    return each_text(drawing, shown)


def select_arrows(arrows: Iterable[Arrow], boxes: Iterable[Box]) -> list[Arrow]:
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
    """Return the end of a folder: below site-packages, if it is in one."""
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


def verb(edge: Edge) -> str:
    """A few words for an edge: `NEEDED, RUNPATH`."""
    if edge.kind == "needs":
        rule = why.RULES.get(edge.rule or "", "not found")
        return f"NEEDED, {rule}"
    if edge.kind == "requires" and edge.condition:
        return f"requires ({edge.condition})" if len(edge.condition) < 30 else "requires (marker)"
    return _VERBS[edge.kind]


# DOT (https://graphviz.org/doc/info/lang.html)


_DOT_SHAPES = {"line": "note", "library": "ellipse", "layer": "cylinder", "embedded": "component"}


def render_dot(drawing: Drawing) -> str:
    """One digraph, the same text for the same drawing."""
    lines = [
        "digraph why {",
        f"  label={_quoted(drawing.title)}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style="filled,rounded", fontname="sans-serif", fontsize=11];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    names = {box.id: f"n{number}" for number, box in enumerate(drawing.boxes)}
    for box in drawing.boxes:
        attributes = [
            f"label={_quoted(*map(short, box.label))}",
            f"tooltip={_quoted(box.title)}",
            f'fillcolor="{FILLS.get(box.kind, OTHER)}"',
        ]
        if box.kind in _DOT_SHAPES:
            attributes += [f"shape={_DOT_SHAPES[box.kind]}", "style=filled"]
        if box.asked:
            attributes.append("penwidth=3")
        lines.append(f"  {names[box.id]} [{', '.join(attributes)}];")
    for arrow in drawing.arrows:
        attributes = [f"label={_quoted(short(arrow.label))}", f"tooltip={_quoted(arrow.title)}"]
        if not arrow.certain:
            attributes.append("style=dashed")
        ends = f"{names[arrow.source]} -> {names[arrow.target]}"
        lines.append(f"  {ends} [{', '.join(attributes)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(*lines: str) -> str:
    r"""A string, its lines centered; a backslash would begin an escape such as `\N`."""
    text = "\n".join(lines).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    printed = (char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return f'"{"".join(printed)}"'


# Mermaid, shown by GitHub and GitLab (https://mermaid.js.org)


_MERMAID_SHAPES = {"line": ("[/", "/]"), "library": ("([", "])"), "layer": ("[(", ")]")}


def render_mermaid(drawing: Drawing) -> str:
    """One flowchart, the same text for the same drawing."""
    lines = ["---", f"title: {_plain(drawing.title)}", "---", "flowchart LR"]
    names = {box.id: f"n{number}" for number, box in enumerate(drawing.boxes)}
    for box in drawing.boxes:
        begin, end = _MERMAID_SHAPES.get(box.kind, ("[", "]"))
        label = "<br/>".join(_escape_mermaid(short(line)) for line in box.label)
        lines.append(f'  {names[box.id]}{begin}"{label}"{end}:::{box.kind}')
    for arrow in drawing.arrows:
        line = "-->" if arrow.certain else "-.->"
        label = f'|"{_escape_mermaid(short(arrow.label))}"|' if arrow.label else ""
        lines.append(f"  {names[arrow.source]} {line}{label} {names[arrow.target]}")
    for kind in sorted({box.kind for box in drawing.boxes}):
        fill = FILLS.get(kind, OTHER)
        lines.append(f"  classDef {kind} fill:{fill},stroke:#495057,color:#000")
    lines += [f"  style {names[box.id]} stroke-width:3px" for box in drawing.boxes if box.asked]
    return "\n".join([*lines, ""])


def _escape_mermaid(text: str) -> str:
    """Entity codes for everything that Mermaid, Markdown or HTML could take for its own."""
    return "".join(
        char if char.isalnum() or char in " .,/_+=:~-" else f"#{ord(char)};"
        for char in text
        if char.isprintable()
    )


def _plain(text: str) -> str:
    """A double-quoted scalar of YAML."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else " " for char in inner) + '"'
