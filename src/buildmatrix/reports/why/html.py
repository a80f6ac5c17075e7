"""An answer of `why` as an HTML page: in words, as a picture of its chains, and as a table."""

from __future__ import annotations

from buildmatrix.reports.drawings import html
from buildmatrix.reports.drawings.drawing import of_answer
from buildmatrix.reports.why import text
from buildmatrix.reports.why.model import Answer
from buildmatrix.text import shown

#: Columns of the answer in words.
_WIDTH = 100


def render(answer: Answer) -> str:
    """The answer as one document."""
    words = text.render(answer, width=_WIDTH, color=False)
    return html.render(of_answer(answer), answer="\n".join(map(shown, words.split("\n"))))
