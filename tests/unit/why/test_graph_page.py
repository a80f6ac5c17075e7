"""A graph as an HTML page; tests/integration/test_pages.py zooms it in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from page_cases import EVIL, answer, graph, hostile_graph

from buildmatrix.reports import formats
from buildmatrix.reports.drawings import html
from buildmatrix.reports.drawings.drawing import Arrow, Box, Drawing, of_answer
from buildmatrix.reports.formats import Destination, by_name


def test_every_box_and_arrow_is_in_the_picture_and_in_the_table() -> None:
    page = html.render(graph(80))
    for number in range(80):
        assert page.count(f'<a href="#b{number}">distribution-number-{number} 1.0.{number}</a>')
        assert page.count(f'<g id="b{number}" class="box">') == 1
    assert len(re.findall(r"<li><a href=", page)) == len(graph(80).arrows)
    assert page.count('class="arrow ') == len(graph(80).arrows)


def test_the_table_says_where_a_box_leads_and_what_only_a_run_does() -> None:
    drawing = Drawing(
        "two",
        (Box("x", "file", ("a.so", "lib")), Box("y", "library", ("b.so",), asked=True)),
        (Arrow("x", "y", "may dlopen", certain=False),),
    )
    asker, asked = html._rows(drawing)
    assert (asker.name, asker.kind, asker.more, asker.asked) == ("a.so", "file", ("lib",), False)
    assert [(link.number, link.name, link.certain) for link in asker.leads_to] == [
        (1, "b.so", False)
    ]
    assert (asked.kind, asked.asked, asked.leads_to) == ("name without a file", True, ())


def test_an_answer_is_there_in_words_and_as_a_picture() -> None:
    page = by_name(formats.WHY, "html").render(answer(), Destination())
    assert "linked by 1 file, the shortest chain is:" in page
    assert page.count('class="box') == len(of_answer(answer()).boxes)


def test_names_are_no_markup_in_the_picture_either() -> None:
    page = html.render(hostile_graph())
    assert EVIL not in page and "<img" not in page and page.count("<script>") == 1
    assert page.count("<style>") == 1 and page.count("</style>") == 1
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: names.update(dict(attributes))  # type: ignore[method-assign]
    names: dict[str, str | None] = {}
    parser.feed(page)
    assert "viewbox" in names and not any(name.startswith("on") for name in names)
    assert html.render(hostile_graph()) == page


def test_the_picture_of_a_page_has_no_style_of_its_own() -> None:
    """The policy of the page would stop it."""
    picture = html.svg.inline(graph(5))
    assert "<style" not in picture and "style=" not in picture
    assert picture.startswith("<svg width=")
