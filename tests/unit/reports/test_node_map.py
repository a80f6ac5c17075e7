"""The heat map of architectures and node classes: fields, and rows that are alike."""

from __future__ import annotations

import page_cases
from nodecases import node, on
from rulecases import elf, file, image, sass
from test_html import Page

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.judge.judging import judge_image
from buildmatrix.judge.model import NodeFit, TargetResult
from buildmatrix.matrix.model import NodeClass, Policy
from buildmatrix.reports import json_form, run_html, saved
from buildmatrix.reports.node_map import MapGroup, NodeMap, node_map
from buildmatrix.reports.run import Report, assemble


def gpus(name: str, *archs: str) -> NodeClass:
    return node("580.65.06", *archs, name=name)


def fits(*codes: tuple[str, ...], nodes: tuple[NodeClass, ...]) -> tuple[NodeFit, ...]:
    """What an image is like on node classes that has a distribution for each set of codes."""
    held = image(
        *(
            file(f"part{number}/lib.so", elf(device_code=sass(*archs)), f"part{number} 1.0")
            for number, archs in enumerate(codes)
        )
    )
    where = on(*nodes)
    return judge_image(where, held, evidence(held, load()), None, load(), Policy()).fits


def drawn(*cells: tuple[NodeFit, ...]) -> NodeMap:
    made = node_map(
        [TargetResult(f"t{n}", "cuda", gates={}, nodes=fits) for n, fits in enumerate(cells)]
    )
    assert made is not None
    return made


def texts(group: MapGroup) -> dict[str, list[str]]:
    return {
        ", ".join(row.architectures) or "all": [cell.text for cell in row.cells]
        for row in group.rows
    }


def test_a_field_says_what_code_is_worth_on_a_gpu() -> None:
    nodes = (gpus("h100", "sm_90"), gpus("mixed", "sm_75", "sm_120"), gpus("lent"))
    made = drawn(fits(("sm_70", "sm_75", "sm_90", "compute_90"), ("sm_90",), nodes=nodes))
    assert [(column.node, column.devices) for column in made.columns] == [
        ("h100", ("sm_90",)),
        ("mixed", ("sm_75", "sm_120")),
        ("lent", ("",)),
    ]
    (group,) = made.groups
    other, open_ = "other GPUs", "undecided"
    assert texts(group) == {
        "all": ["native", "missing: 1 of 2", "missing: 1 of 2", open_],
        "sm_70, sm_75": [other, "native", other, open_],
        "sm_90": ["native", other, other, open_],
        "compute_90": ["JIT only", other, "JIT only", open_],
    }
    assert [(cell.style, cell.span) for cell in group.fits] == [
        ("good", 1),
        ("fair", 2),
        ("undecided", 1),
    ]
    assert {row for row, _, reasons in group.reasons if reasons} == {"mixed", "lent"}


def test_targets_that_are_alike_share_rows_and_others_have_their_own_fields() -> None:
    cuda = fits(("sm_90",), nodes=(gpus("h100", "sm_90"),))
    late = fits(("compute_90",), nodes=(gpus("b200", "sm_100"),))
    made = drawn(cuda, late, cuda)
    assert [group.targets for group in made.groups] == [("t0", "t2"), ("t1",)]
    assert texts(made.groups[0]) == {"all": ["native", ""], "sm_90": ["native", ""]}
    assert texts(made.groups[1]) == {"all": ["", "JIT only"], "compute_90": ["", "JIT only"]}


def test_an_image_without_device_code_and_an_earlier_report_have_no_such_rows() -> None:
    plain = fits(nodes=(gpus("h100", "sm_90"),))
    old = tuple(replace(cell, devices=None) for cell in plain)
    for cells in (plain, old):
        made = drawn(cells)
        assert not made.has_code
        assert [group.rows for group in made.groups] == [()]
    assert node_map([TargetResult("t", "cpu", gates={})]) is None


def report() -> Report:
    nodes = (gpus("h100", "sm_90"), gpus("b200", "sm_100"))
    cells = fits(("sm_90", "compute_90"), nodes=nodes)
    return assemble("x", "2026-11-22", targets=[TargetResult("t", "cuda", gates={}, nodes=cells)])


def test_a_saved_report_draws_the_same() -> None:
    made = report()
    page = run_html.render(made)
    assert run_html.render(saved.parse(json_form.render(made).encode(), "report.json")) == page
    assert "b200: jit" in page and "BM403" in page


def test_every_field_has_words_and_heads_of_its_row_and_column() -> None:
    page = run_html.render(page_cases.matrix(("py312",)))
    table = page[page.index('<table id="nodes"') :]
    table = table[: table.index("</table>")]
    assert 'scope="rowgroup"' in table and 'scope="colgroup" colspan="2">l4-and-t4' in table
    for word in ("native", "JIT only", "missing: 1 of 2", "undecided", "other GPUs"):
        assert f">{word}<" in table
    assert "title=" not in table
    assert "has no device code for sm_120 (waived)" in Page(page).text
