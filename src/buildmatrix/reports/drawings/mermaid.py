"""A drawing in the language of Mermaid, which GitHub and GitLab show (https://mermaid.js.org)."""

from __future__ import annotations

from buildmatrix.reports.drawings.drawing import Drawing
from buildmatrix.reports.drawings.style import FILLS, short

_SHAPES = {"line": ("[/", "/]"), "library": ("([", "])"), "layer": ("[(", ")]")}


def render(drawing: Drawing) -> str:
    """One flowchart, the same text for the same drawing."""
    lines = ["---", f"title: {_plain(drawing.title)}", "---", "flowchart LR"]
    names = {box.id: f"n{number}" for number, box in enumerate(drawing.boxes)}
    for box in drawing.boxes:
        begin, end = _SHAPES.get(box.kind, ("[", "]"))
        label = "<br/>".join(_escaped(short(line)) for line in box.label)
        lines.append(f'  {names[box.id]}{begin}"{label}"{end}:::{box.kind}')
    for arrow in drawing.arrows:
        line = "-->" if arrow.certain else "-.->"
        label = f'|"{_escaped(short(arrow.label))}"|' if arrow.label else ""
        lines.append(f"  {names[arrow.source]} {line}{label} {names[arrow.target]}")
    for kind in sorted({box.kind for box in drawing.boxes}):
        lines.append(
            f"  classDef {kind} fill:{FILLS.get(kind, '#ffffff')},stroke:#495057,color:#000"
        )
    subjects = [names[box.id] for box in drawing.boxes if box.asked]
    if subjects:
        lines.append(f"  style {subjects[0]} stroke-width:3px")
        lines += [f"  style {name} stroke-width:3px" for name in subjects[1:]]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
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
