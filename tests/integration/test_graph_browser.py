"""Pictures of graphs in a real browser: everything is there, and nothing covers another thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import Page, opened
from playwright.sync_api import Browser

from buildmatrix.reports.drawings import svg as graph_svg
from buildmatrix.reports.drawings.drawing import Arrow, Box, Drawing

EVIL = "</title></svg><script>document.documentElement.id='owned'</script><a href='//x.invalid'>"
#: Distance in pixels that a text may stick out of its box: letters differ from font to font.
SLACK = 3


Show = Callable[[Drawing], Iterator[Page]]


@pytest.fixture
def show(browser: Browser, tmp_path: Path):
    @contextmanager
    def shown(drawing: Drawing) -> Iterator[Page]:
        path = tmp_path / "graph.svg"
        path.write_text(graph_svg.render(drawing), encoding="utf-8")
        with opened(browser, path) as page:
            yield page

    return shown


def wide(count: int) -> Drawing:
    """As many distributions, each with an arrow to one that comes before it."""
    boxes = [
        Box(f"d{n}", "distribution", (f"distribution-number-{n} 1.0.{n}", "12 files, 3.4 GB"))
        for n in range(count)
    ]
    arrows = [Arrow(f"d{n // 3}", f"d{n}", "libexample.so.12") for n in range(1, count)]
    return Drawing(f"libraries of {count} distributions", tuple(boxes), tuple(arrows))


def overlaps(page: Page) -> int:
    """How many pairs of boxes overlap on the screen."""
    return page.run(
        """(() => {
          const boxes = [...document.querySelectorAll('.box rect')]
            .map((one) => one.getBoundingClientRect());
          let found = 0;
          boxes.forEach((a, n) => boxes.slice(n + 1).forEach((b) => {
            if (a.left < b.right && b.left < a.right
              && a.top < b.bottom && b.top < a.bottom) found++;
          }));
          return found;
        })()"""
    )


def outside(page: Page) -> list[str]:
    """Texts that stick out of their boxes."""
    return page.run(
        f"""[...document.querySelectorAll('.box')].flatMap((box) => {{
          const frame = box.querySelector('rect').getBoundingClientRect();
          return [...box.querySelectorAll('text')].filter((text) => {{
            const own = text.getBoundingClientRect();
            return own.right > frame.right + {SLACK} || own.left < frame.left - {SLACK}
              || own.bottom > frame.bottom + {SLACK} || own.top < frame.top - {SLACK};
          }}).map((text) => text.textContent);
        }})"""
    )


@pytest.mark.parametrize("count", [2, 40, 300])
def test_every_box_is_shown_with_its_text_inside_and_none_covers_another(show, count: int) -> None:
    with show(wide(count)) as page:
        assert page.run("document.querySelectorAll('.box').length") == count
        assert overlaps(page) == 0
        assert outside(page) == []
        assert page.complaints == []


def test_the_whole_picture_lies_inside_of_its_frame(show) -> None:
    with show(wide(60)) as page:
        assert (
            page.run(
                """(() => {
              const frame = document.documentElement.getBoundingClientRect();
              return [...document.querySelectorAll('.box, .arrow path')].filter((one) => {
                const own = one.getBoundingClientRect();
                return own.left < frame.left || own.right > frame.right
                  || own.top < frame.top || own.bottom > frame.bottom;
              }).length;
            })()"""
            )
            == 0
        )


def test_an_arrow_ends_at_the_box_that_it_leads_to(show) -> None:
    drawing = Drawing(
        "two", (Box("a", "file", ("a",)), Box("b", "file", ("b",))), (Arrow("a", "b", "x"),)
    )
    with show(drawing) as page:
        gap = page.run(
            """(() => {
              const path = document.querySelector('.arrow path');
              const end = path.getPointAtLength(path.getTotalLength());
              const box = document.querySelectorAll('.box rect')[1];
              return Math.abs(end.x - Number(box.getAttribute('x')));
            })()"""
        )
    assert gap < 1


def test_hostile_names_are_text_and_load_nothing(show) -> None:
    drawing = Drawing(
        EVIL, (Box(EVIL, "file", (EVIL, EVIL), EVIL, True),), (Arrow(EVIL, EVIL, EVIL, EVIL),)
    )
    with show(drawing) as page:
        assert page.run("document.documentElement.id") == ""
        assert page.run("document.querySelectorAll('script, a').length") == 0
        assert page.run("document.querySelector('.box title').textContent") == EVIL
        assert [one for one in page.requests if not one.startswith("file:")] == []
        assert page.complaints == []


def test_pointing_at_a_box_shows_its_arrows_in_the_crowd(show) -> None:
    opacity = "[...document.querySelectorAll('.arrow')].map((a) => getComputedStyle(a).opacity)"
    drawing = wide(40)
    with show(drawing) as page:
        assert set(page.run(opacity)) == {"1"}
        x, y = page.run(
            """(() => {
              document.querySelector('#b3').scrollIntoView();
              const box = document.querySelector('#b3').getBoundingClientRect();
              return [box.left + 5, box.top + 5];
            })()"""
        )
        page.view.mouse.move(x, y)
        clear = [n for n, one in enumerate(page.run(opacity)) if one == "1"]
    touching = [n for n, one in enumerate(drawing.arrows) if "d3" in (one.source, one.target)]
    assert clear == touching


def test_no_label_covers_another_or_a_box(show) -> None:
    boxes = tuple(Box(f"d{n}", "distribution", (f"distribution-{n} 1.0",)) for n in range(24))
    # A hub, what it links, and what all of that links.
    pairs = [("d0", f"d{n}") for n in range(1, 20)] + [(f"d{n}", "d23") for n in range(1, 8)]
    arrows = tuple(Arrow(a, b, "libexample.so.12, may open 1") for a, b in pairs)
    with show(Drawing("x", boxes, arrows)) as page:
        assert page.run("document.querySelectorAll('.label').length") == len(arrows)
        assert (
            page.run(
                """(() => {
                  const of = (what) => [...document.querySelectorAll(what)]
                    .map((one) => one.getBoundingClientRect());
                  const meet = (a, b) => a.left < b.right && b.left < a.right
                    && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
                  const labels = of('.label'), boxes = of('.box rect');
                  return labels.flatMap((a, n) =>
                    [...labels.slice(n + 1), ...boxes].filter((b) => meet(a, b))).length;
                })()"""
            )
            == 0
        )
