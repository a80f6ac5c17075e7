"""The grid of targets and node classes."""

from __future__ import annotations

import pytest
from nodecases import compat, cudart, node, on
from rulecases import elf, file, image, sass

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.fit import mark_accepted
from buildmatrix.judge.judging import judge_image
from buildmatrix.judge.model import NodeFit, TargetResult
from buildmatrix.matrix.model import NodeClass, Policy
from buildmatrix.reports import run_html, run_table
from buildmatrix.reports.run import assemble


def cells(inventory: Inventory, *nodes: NodeClass, backend: str = "cuda") -> tuple[NodeFit, ...]:
    seen = evidence(inventory, load())
    where = on(*nodes, backend=backend)
    return judge_image(where, inventory, seen, None, load(), Policy()).fits


OTHER = file("other/lib.so", elf(device_code=sass("sm_75", "sm_90")), "other 1.0")
ADA = file("acme/lib.so", elf(device_code=sass("sm_80")), "acme 1.0")
CODE = file("acme/lib.so", elf(device_code=sass("sm_90", "compute_90")), "acme 1.0")


@pytest.mark.parametrize(
    ("files", "driver", "archs", "state", "codes"),
    [
        ((cudart(), CODE), "570.26", ("sm_90",), "ok", set()),
        ((cudart(), CODE), "550.54.14", ("sm_90",), "minor-version", {"BM702"}),
        ((cudart(), CODE), "470.82.01", ("sm_90",), "refused", {"BM701"}),
        ((cudart(), CODE), "570.26", ("sm_100",), "jit", {"BM403"}),
        ((cudart(), CODE), "570.26", ("sm_75",), "refused", {"BM402"}),
        ((cudart(), CODE, OTHER), "570.26", ("sm_75",), "ok", {"BM402"}),
        ((cudart(), CODE), "", ("sm_90",), "undecided", {""}),
        ((cudart(), CODE), "<600", ("sm_90",), "undecided", {""}),
        ((cudart(), CODE), "570.26", (), "undecided", {""}),
        ((cudart(), CODE), "999.1", ("sm_90",), "ok", {""}),
        ((cudart("13.9.1"), CODE), "999.1", ("sm_90",), "undecided", {"", "BM710"}),
        # Made for an H100, and so by its architecture alone.
        ((cudart(), CODE, compat()), "550.54.14", ("sm_90",), "compat-package", {""}),
        ((cudart(), ADA, compat()), "550.54.14", ("sm_89",), "undecided", {"BM703"}),
        ((), "", (), "ok", set()),
    ],
)
def test_the_worst_counts(
    files: tuple, driver: str, archs: tuple[str, ...], state: str, codes: set[str]
) -> None:
    (cell,) = cells(image(*files), node(driver, *archs))
    assert cell.state == state
    assert {reason.rule for reason in cell.reasons} == codes


def test_a_runtime_of_no_version_leaves_it_open() -> None:
    held = image(file("acme/libacme.so", elf(marks=["cudart-error-string"]), "acme 1.0"))
    (cell,) = cells(held, node("570.26", "sm_90"))
    assert cell.state == "undecided" and "version" in cell.reasons[0].text


def test_every_class_of_the_target_has_a_cell_in_its_order() -> None:
    nodes = [node("570.26", "sm_90", name=name) for name in ("c", "a", "b")]
    assert [cell.node for cell in cells(image(cudart()), *nodes)] == ["c", "a", "b"]
    assert cells(image(cudart())) == ()


def test_a_waiver_changes_no_state() -> None:
    held = image(cudart("13.0.96"))
    seen = evidence(held, load())
    where = on(node("550.54.14", "sm_90", name="old"))
    judged = judge_image(where, held, seen, None, load(), Policy())
    waived = [replace(finding, waived="until the upgrade") for finding in judged.findings]
    (cell,) = mark_accepted(judged.fits, waived)
    assert cell.state == "refused" and all(reason.waived for reason in cell.reasons)
    (open_cell,) = mark_accepted(judged.fits, judged.findings)
    assert not any(reason.waived for reason in open_cell.reasons)
    result = TargetResult("cuda12.8", "cuda", gates={}, nodes=(cell,))
    text = run_table.render(assemble("x", "2026-11-22", targets=[result]), width=100, color=False)
    assert "refused (BM701 waived)" in text


def report(*nodes: NodeClass, files: tuple = (cudart(), CODE)) -> str:
    result = TargetResult("cuda12.8-py311", "cuda", gates={}, nodes=cells(image(*files), *nodes))
    return assemble("x", "2026-11-22", targets=[result])


def test_the_grid_in_a_terminal_and_on_a_page() -> None:
    made = report(
        node("550.54.14", "sm_90", name="h100-550"),
        node("580.65.06", "sm_90", name="h100-580"),
        node("", "sm_90", name="<b>any"),
    )
    text = run_table.render(made, width=100, color=False)
    assert "runs on         h100-550               h100-580  <b>any" in text
    assert "cuda12.8-py311  minor-version (BM702)  ok        undecided" in text
    assert "<b>any: <b>any names no driver" in text
    page = run_html.render(made)
    assert "Architectures and node classes</h2>" in page and "minor-version" in page
    assert "&lt;b&gt;any names no driver" in page
    assert "&lt;b&gt;any" in page and "<b>any" not in page


def test_a_grid_that_is_too_wide_is_a_list() -> None:
    nodes = [node("550.54.14", "sm_90", name=f"class-{number}") for number in range(9)]
    text = run_table.render(report(*nodes), width=70, color=False)
    assert "  class-8: minor-version (BM702)" in text
    assert max(map(len, text.splitlines())) <= 70
    assert "runs on" not in run_table.render(report(), width=60, color=False)
