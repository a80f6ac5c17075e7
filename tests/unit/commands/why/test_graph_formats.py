"""Pictures: every format holds every name, and no name gets out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from graph_cases import binary, distribution, elf, graph_of, why

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.library_graph import draw_libraries
from buildmatrix.facts.inventory.model import Inventory, Layer
from buildmatrix.reports import drawings, json_form
from buildmatrix.reports.drawings import Arrow, Box, Drawing, draw_answer

HOSTILE = (
    '</title><script>alert(1)</script>"]; n0 -> x; \\N %%{init}%% --> `$(id)` &amp; \x1b \ud800'
)
FORMATS = (drawings.render_dot, json_form.render, drawings.render_mermaid)


def hostile() -> Drawing:
    return Drawing(
        HOSTILE,
        (Box("a", "file", (HOSTILE, "x"), HOSTILE, True), Box(HOSTILE, "library", (HOSTILE,))),
        (Arrow("a", HOSTILE, HOSTILE, HOSTILE), Arrow(HOSTILE, "a", "back", "", False)),
    )


def small() -> Drawing:
    tree = Inventory(
        distributions=(distribution("a", "b"), distribution("b")),
        binaries=(
            binary("a/core.so", elf("libb.so", runpath=["$ORIGIN/../b"]), "a==1.0"),
            binary("b/libb.so", elf(), "b==1.0"),
        ),
        layers=(Layer("sha256:1", "COPY . /", 1),),
        origins={"lib/python3.11/site-packages/b/libb.so": 0},
    )
    return draw_answer(why(tree, "libb.so"))


@pytest.mark.parametrize("render", FORMATS)
def test_every_format_shows_the_chain_and_the_layer(render: Callable[[Drawing], str]) -> None:
    text = render(small())
    for name in ("a 1.0", "b 1.0", "core.so", "libb.so", "layer"):
        assert name in text


def test_hostile_names_stay_inside_of_dot() -> None:
    lines = drawings.render_dot(hostile()).splitlines()
    string = r'"(?:[^"\\]|\\.)*"'
    value = rf"(?:{string}|[a-z]+|[0-9]+)"
    attributes = rf"\[\w+={value}(?:, \w+={value})*\];"
    for line in lines[4:-1]:
        assert re.fullmatch(rf"  n\d(?: -> n\d)? {attributes}", line), line
    assert not any("\x1b" in line or "\ud800" in line for line in lines)


def test_hostile_names_stay_inside_of_mermaid() -> None:
    lines = drawings.render_mermaid(hostile()).splitlines()
    body = [line for line in lines[4:] if re.match(r"  n\d", line)]
    text = r'"(?:[\w .,/+=:~\-]|#\d+;|<br/>)*"'
    for line in body:
        box = rf"  n\d(\[|\(\[)({text})(\]|\]\)):::\w+"
        assert re.fullmatch(rf"{box}|  n\d (-->|-\.->)\|{text}\| n\d", line), line
    assert lines[1].startswith('title: "') and lines[1].count('"') - lines[1].count('\\"') == 2


def test_json_has_every_box_and_arrow() -> None:
    document = json.loads(json_form.render(small()))
    assert document["schema"] == "buildmatrix/graph/1"
    ids = {box["id"] for box in document["boxes"]}
    assert all({arrow["source"], arrow["target"]} <= ids for arrow in document["arrows"])


def big() -> Inventory:
    """300 distributions, each with libraries of its own, that need those of a few others."""
    return Inventory(
        distributions=tuple(distribution(f"pkg{n}", f"pkg{n // 3}") for n in range(1, 301)),
        binaries=tuple(
            binary(
                f"pkg{n}/lib{n}_{copy}.so",
                elf(f"lib{n // 3}_0.so", "libc.so.6", runpath=[f"$ORIGIN/../pkg{n // 3}"]),
                f"pkg{n}==1.0",
            )
            for n in range(1, 301)
            for copy in range(5)
        ),
    )


def test_a_tree_of_300_distributions_shows_all_and_is_no_crowd() -> None:
    drawing = draw_libraries("dir:/x", graph_of(big()))
    shown = {name for box in drawing.boxes for name in (box.label[0], *box.title.split("\n"))}
    assert {f"pkg{n} 1.0" for n in range(1, 301)} <= shown
    assert 60 < len(drawing.boxes) < 250
    ends = {box.id for box in drawing.boxes}
    assert all({arrow.source, arrow.target} <= ends for arrow in drawing.arrows)
    assert not any("libc.so.6" in line for box in drawing.boxes for line in box.label)


def test_names_that_only_one_distribution_asks_for_are_one_box() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a/core.so", elf("libone.so", "libtwo.so"), "a==1.0"),),
    )
    (box,) = [b for b in draw_libraries("dir:/x", graph_of(tree)).boxes if b.kind == "library"]
    assert box.label == ("2 names", "not in this tree", "libone.so, libtwo.so")


def test_a_library_of_the_hosts_driver_is_drawn_as_that() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a/core.so", elf("libcuda.so.1"), "a==1.0"),),
    )
    # What the catalogue says of a name comes with the evidence.
    graph, found = graph_of(tree), evidence(tree, load())
    (box,) = [b for b in draw_libraries("dir:/x", graph, found).boxes if b.kind == "library"]
    assert box.label == ("libcuda.so.1", "of the host's driver")


def test_the_same_drawing_gives_the_same_bytes(tmp_path: Path) -> None:
    for render in FORMATS:
        assert render(small()) == render(small())


def test_in_a_crowd_names_that_the_same_distributions_ask_for_are_one_box() -> None:
    names = [f"lib{name}.so.12" for name in ("cublas", "cufft", "cusparse", "cusolver")]
    tree = Inventory(
        distributions=tuple(distribution(f"pkg{n}") for n in range(130)),
        binaries=tuple(
            binary(
                f"pkg{n}/core.so",
                # Two of them ask for vendors' names; every other one for one of its neighbour.
                elf(*names) if n < 2 else elf(f"lib{n // 2}.so", f"libown{n}.so"),
                f"pkg{n}==1.0",
            )
            for n in range(130)
        ),
    )
    drawing = draw_libraries("dir:/x", graph_of(tree), evidence(tree, load()))
    (box,) = [one for one in drawing.boxes if "libcufft.so.12" in one.title.split("\n")]
    assert box.label[:2] == ("4 names", "not in this tree")
    arrows = [arrow for arrow in drawing.arrows if arrow.target == box.id]
    assert {arrow.source for arrow in arrows} == {"distribution:pkg0", "distribution:pkg1"}
    assert {arrow.label for arrow in arrows} == {"libcublas.so.12 and 3 more"}


def test_a_name_of_10000_characters_does_not_fill_a_picture() -> None:
    name = "lib" + "a" * 10_000 + ".so"
    drawing = Drawing(
        "x", (Box("a", "library", (name,)), Box("b", "file", ("b",))), (Arrow("b", "a", name),)
    )
    for render in (drawings.render_dot, drawings.render_mermaid):
        assert len(render(drawing)) < 6_000
