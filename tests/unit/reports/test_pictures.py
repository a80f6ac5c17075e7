"""Pictures of a report: areas and lengths are in proportion to bytes, and parts add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_html import Page
from test_report_formats import report, result

from buildmatrix.base.data import replace
from buildmatrix.base.text import size
from buildmatrix.judge.composition import (
    Composition,
    DistributionBytes,
    FileBytes,
    LayerBytes,
    VendorBytes,
)
from buildmatrix.judge.model import Verdict
from buildmatrix.reports import json_form, run_html, saved
from buildmatrix.reports.charts import strip, treemap
from buildmatrix.reports.node_map import architecture_grids
from buildmatrix.reports.run_html import link_list


@st.composite
def distributions(draw: st.DrawFn) -> DistributionBytes:
    vendors = []
    for vendor in draw(st.lists(st.sampled_from(["", "nvidia", "amd", "acme"]), unique=True)):
        bytes_ = draw(st.integers(1, 10**10))
        vendors.append(VendorBytes(vendor, bytes_, draw(st.integers(0, bytes_))))
    whole = sum(share.size for share in vendors)
    files, left = [], whole
    for number, share in enumerate(vendors):
        bytes_ = draw(st.integers(0, min(share.size, left)))
        if bytes_:
            files.append(
                FileBytes(
                    f"{number}.so",
                    bytes_,
                    share.vendor,
                    bytes_ if share.vendor else 0,
                    min(bytes_, share.wasted),
                )
            )
            left -= bytes_
    return DistributionBytes(
        draw(st.sampled_from("abcdefgh")),
        "1",
        draw(st.sampled_from(["", "requirements.in:1", "requirements.in:2"])),
        "a",
        whole,
        sum(share.wasted for share in vendors),
        tuple(vendors),
        tuple(files),
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(distributions(), min_size=1, max_size=12))
def test_areas_are_in_proportion_to_bytes_and_leaves_fill_their_cells(parts) -> None:
    made = Composition(tuple(sorted(parts, key=lambda part: -part.size)))
    drawn = treemap(["a"], made)
    whole = sum(part.size for part in parts)
    assert drawn.size == whole == sum(part.size for part in drawn.parts)
    if not whole:
        return
    # Titles and gaps take some room, the same within a block.
    for block in drawn.blocks:
        cells = [cell for cell in block.cells if cell.row is not None]
        scales = [cell.area.width * cell.area.height / drawn.parts[cell.row].size for cell in cells]
        assert all(scale == pytest.approx(scales[0], rel=1e-6) for scale in scales)
        for cell in block.cells:
            area = cell.area.width * cell.area.height
            leaves = sum(leaf.area.width * leaf.area.height for leaf in cell.leaves)
            assert leaves == pytest.approx(area, rel=1e-6)
    lines: dict[str, int] = {}
    for part in parts:
        if part.size:
            lines[part.line] = lines.get(part.line, 0) + part.size
    areas = sorted(block.area.width * block.area.height for block in drawn.blocks)
    wanted = sorted(1200 * 460 * bytes_ / whole for bytes_ in lines.values())
    assert areas == pytest.approx(wanted, rel=1e-6)


TORCH = DistributionBytes(
    "torch",
    "2.9.1",
    "requirements.in:1",
    "torch",
    1000,
    600,
    (VendorBytes("nvidia", 600, 600), VendorBytes("", 400)),
    (FileBytes("torch/lib/libtorch_cuda.so", 700, "nvidia", 500, 500),),
    links=("nvidia-cudnn-cu12",),
)
CUDNN = DistributionBytes(
    "nvidia-cudnn-cu12",
    "9",
    "requirements.in:1",
    "torch",
    3000,
    3000,
    (VendorBytes("nvidia", 3000, 3000),),
    required_by=("torch", "gone"),
)
MADE = Composition(
    (CUDNN, TORCH),
    (LayerBytes("ADD base", 100, 40, 0, True), LayerBytes("RUN <i>pip", 300, 0, 150)),
)


def test_a_distribution_is_colored_by_vendor_as_far_as_it_is_that_vendors() -> None:
    (block,) = treemap(["a"], MADE).blocks
    torch = block.cells[1]
    area = torch.area.width * torch.area.height
    nvidia = sum(leaf.held * leaf.area.height for leaf in torch.leaves if leaf.style == "nvidia")
    assert nvidia == pytest.approx(0.6 * area)
    wasted = sum(leaf.wasted * leaf.area.height for leaf in torch.leaves)
    assert wasted == pytest.approx(0.6 * area)
    assert block.title == "requirements.in:1 torch, 4.0 kB"
    assert torch.text == "torch 2.9.1: 1.0 kB, of these 600 B wasted; NVIDIA 600 B, no vendor 400 B"


@given(
    st.lists(
        st.tuples(*[st.integers(-5, 10**12)] * 3).map(lambda sizes: LayerBytes("", *sizes)),
        max_size=20,
    )
)
def test_layers_stand_one_behind_the_other_whatever_a_report_says(layers) -> None:
    drawn = strip(["a"], layers)
    whole = sum(max(0, layer.size) for layer in layers)
    assert drawn.size == whole and 0 <= drawn.wasted <= whole
    at = 0.0
    for layer, pieces in zip(layers, drawn.pieces, strict=True):
        for piece in pieces:
            assert piece.x == pytest.approx(at) and piece.width >= 0
            at += piece.width
        length = sum(piece.width for piece in pieces)
        assert length == pytest.approx(100 * max(0, layer.size) / whole if whole else 0)


def test_a_layer_says_what_of_it_is_used_wasted_and_deleted() -> None:
    drawn = strip(["a"], MADE.layers)
    assert drawn.texts == (
        "layer 1: 60 B used, 40 B deleted or replaced by a later layer",
        "layer 2: 150 B used, 150 B wasted",
    )
    assert (drawn.size, drawn.wasted) == (400, 190)


def test_links_and_requirements_are_listed() -> None:
    links = link_list(["a"], MADE)
    assert links is not None
    assert links.sentences == ("torch links libraries of nvidia-cudnn-cu12",)
    required = link_list(["a"], Composition((CUDNN, replace(TORCH, links=()))))
    assert required is not None
    assert required.sentences == ("torch requires nvidia-cudnn-cu12",)
    assert link_list(["a"], Composition((replace(CUDNN, required_by=()),))) is None


def test_architectures_stand_in_the_order_of_their_numbers() -> None:
    verdicts = [
        Verdict("a", "1", backend, "ok", "", architectures={"nvidia": ("sm_100", "sm_90")})
        for backend in ("cpu", "rocm")
    ]
    verdicts.append(Verdict("b", "2", "cpu", "ok", "", architectures={"nvidia": ("sm_90",)}))
    (grid,) = architecture_grids(verdicts)
    assert grid.architectures == ("sm_90", "sm_100")
    assert grid.rows == (("a 1", "cpu, rocm", (True, True)), ("b 2", "cpu", (True, False)))


def test_a_saved_report_gives_the_same_page_and_one_without_the_key_still_one() -> None:
    made = report(targets=(replace(result(), composition=MADE),))
    page = run_html.render(made)
    text = json_form.render(made).encode()
    assert run_html.render(saved.parse(text, "report.json")) == page
    for title in ("Where the bytes are", "Layers", "Who links and requires whom"):
        assert title in page
        assert title not in run_html.render(report())
    assert "<i>" not in page


def test_every_area_leads_to_the_row_that_says_the_same() -> None:
    page = Page(run_html.render(report(targets=(replace(result(), composition=MADE),))))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    assert len(links) == 1 + 2 and {link[1:] for link in links if link} <= set(ids)
    assert size(3000) in page.text


def test_what_takes_no_room_in_the_treemap_is_no_stop_of_the_keyboard() -> None:
    def part(name: str, line: str, bytes_: int) -> DistributionBytes:
        shares = (VendorBytes("", bytes_),)
        return DistributionBytes(name, "1", line, name, bytes_, 0, shares)

    made = Composition((part("torch", "a.in:1", 10**10), part("jinja2", "a.in:2", 10**5)))
    cells = {
        cell.text.split()[0]: cell for block in treemap(["t"], made).blocks for cell in block.cells
    }
    assert (cells["torch"].row, cells["jinja2"].row) == (0, None)
