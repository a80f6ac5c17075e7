"""A drawing as an HTML page: the picture, zoomed by keys, and the same as a table."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.reports.drawings import svg
from buildmatrix.reports.drawings.drawing import Drawing, of_answer
from buildmatrix.reports.drawings.style import NAMES
from buildmatrix.reports.page import document
from buildmatrix.reports.why import text
from buildmatrix.reports.why.model import Answer
from buildmatrix.text import shown

#: Columns of an answer in words.
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class BoxLink:
    """The other end of an arrow, in the table."""

    #: Position of its box in the drawing, which is its id in the page.
    number: int
    name: str
    label: str
    certain: bool


@dataclass(frozen=True, slots=True)
class BoxRow:
    """A box in the table, for those who do not see the picture."""

    number: int
    name: str
    kind: str
    more: tuple[str, ...]
    asked: bool
    leads_to: tuple[BoxLink, ...]


def render(drawing: Drawing) -> str:
    """The drawing as one document."""
    return _page(drawing, "")


def render_answer(answer: Answer) -> str:
    """An answer of `why` as one document: in words, as a picture of its chains, and as a table."""
    words = text.render(answer, width=_WIDTH, color=False)
    return _page(of_answer(answer), "\n".join(map(shown, words.split("\n"))))


def _page(drawing: Drawing, answer: str) -> str:
    from markupsafe import Markup

    return document.render(
        "drawings/page/graph.html.j2",
        styles=["drawings/page/graph.css"],
        scripts=["drawings/page/graph.js"],
        drawing=drawing,
        answer=answer,
        rows=_rows(drawing),
        # `svg` escapes every text in it.
        picture=Markup(svg.inline(drawing)),  # noqa: S704
    )


def _rows(drawing: Drawing) -> list[BoxRow]:
    index = {box.id: number for number, box in enumerate(drawing.boxes)}
    leading: dict[str, list[BoxLink]] = {}
    for arrow in drawing.arrows:
        number = index[arrow.target]
        name = drawing.boxes[number].label[0]
        leading.setdefault(arrow.source, []).append(
            BoxLink(number, name, arrow.label, arrow.certain)
        )
    return [
        BoxRow(
            number,
            box.label[0],
            NAMES.get(box.kind, box.kind),
            box.label[1:],
            box.asked,
            tuple(leading.get(box.id, ())),
        )
        for number, box in enumerate(drawing.boxes)
    ]
