"""A drawing in the language of Graphviz (https://graphviz.org/doc/info/lang.html)."""

from __future__ import annotations

from buildmatrix.reports.drawings.drawing import Drawing
from buildmatrix.reports.drawings.style import FILLS, OTHER, short

_SHAPES = {"line": "note", "library": "ellipse", "layer": "cylinder", "embedded": "component"}


def render(drawing: Drawing) -> str:
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
        if box.kind in _SHAPES:
            attributes += [f"shape={_SHAPES[box.kind]}", "style=filled"]
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


def _quoted(*texts: str) -> str:
    r"""A string, its lines centered; a backslash would begin an escape such as `\N`."""
    return '"' + "\\n".join(map(_escaped, texts)) + '"'


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
