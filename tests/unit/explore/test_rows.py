"""Rows of the views: what they add up to, what is open, sorted and filtered."""

from __future__ import annotations

import pytest
from explorecases import exploration, image, large

from buildmatrix.base.errors import UsageError
from buildmatrix.explore.details import make_details, make_question
from buildmatrix.explore.model import VIEWS, Exploration, Filters, Item, Listing


@pytest.fixture(scope="module")
def shown() -> Exploration:
    return exploration()


def names(listing: Listing, filters: Filters | None = None) -> list[str]:
    return ["  " * row.depth + row.item.name for row in listing.rows(filters or Filters())]


def named(items: tuple[Item, ...], name: str) -> Item:
    for item in items:
        if item.name == name:
            return item
        if item.children and (inside := _named(item.children, name)) is not None:
            return inside
    raise AssertionError(name)


def _named(items: tuple[Item, ...], name: str) -> Item | None:
    try:
        return named(items, name)
    except AssertionError:
        return None


def text(item: Item, exploration: Exploration) -> str:
    return "\n".join(f"{line.name}: {line.text}" for line in make_details(item, exploration))


def test_what_a_layer_wastes_is_hidden_or_foreign(shown: Exploration) -> None:
    layers = shown.views["layers"]
    assert [(layer.size, layer.wasted) for layer in layers] == [
        (30_000_000, 0),
        (40_000_000, 35_000_000),
        (92_000_000, 61_000_000),
        (0, 0),
    ]
    assert sorted(
        ((item.kind, item.size) for item in layers[1].children if item.wasted),
        key=lambda wasted: -wasted[1],
    ) == [
        ("deleted", 30_000_000),
        ("replaced", 4_000_000),
        ("deleted", 1_000_000),
    ]
    assert (shown.size, shown.wasted) == (162_000_000, 96_000_000)


def test_the_rows_of_a_layer_add_up_to_it(shown: Exploration) -> None:
    for layer in shown.views["layers"]:
        assert sum(child.size for child in layer.children) == layer.size


def test_waste_of_a_distribution_is_that_of_its_verdict(shown: Exploration) -> None:
    verdicts = shown.files.verdicts
    for item in shown.views["distributions"]:
        if item.kind == "distribution":
            assert item.wasted == verdicts[item.key].foreign_bytes


def test_without_a_backend_nothing_is_foreign() -> None:
    shown = exploration(backend=None)
    assert shown.backend is None
    assert [item.wasted for item in shown.views["distributions"]] == [0, 0, 0, 0]
    # What a layer hides is wasted on any backend.
    assert shown.wasted == 35_000_000


def test_a_backend_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no backend 'abacus'"):
        exploration(backend="abacus")


def test_rows_open_close_and_sort(shown: Exploration) -> None:
    listing = Listing(shown.views["distributions"])
    assert names(listing) == [
        "gradients 2.0", "libc6 2.41", "nvidia-cuda-runtime-cu12 12.8.90", "plain 1.0",
    ]  # fmt: skip
    listing.order = "wasted"
    assert names(listing)[:2] == ["gradients 2.0", "nvidia-cuda-runtime-cu12 12.8.90"]
    listing.order = "name"
    listing.toggle(named(tuple(listing.items), "gradients 2.0"), False)
    assert names(listing)[:3] == ["gradients 2.0", "  libgradients.so", "  other files"]
    listing.toggle(named(tuple(listing.items), "gradients 2.0"), True)
    assert len(names(listing)) == 4
    listing.toggle_all()
    assert len(names(listing)) == 10
    listing.toggle_all()
    assert len(names(listing)) == 4


def test_a_text_opens_the_groups_that_hold_it(shown: Exploration) -> None:
    listing = Listing(shown.views["layers"], is_ordered=True)
    assert names(listing, Filters(text="CUDART")) == [
        "3 RUN pip install gradients",
        "  nvidia-cuda-runtime-cu12 12.8.90",
        "    libcudart.so.12",
    ]
    # A group of that name keeps all that it holds, and stays closed.
    assert names(listing, Filters(text="gradients 2.0")) == [
        "3 RUN pip install gradients",
        "  gradients 2.0",
    ]
    assert names(listing, Filters(text="nothing at all")) == []


def test_a_group_can_be_closed_under_a_filter(shown: Exploration) -> None:
    listing = Listing(shown.views["layers"], is_ordered=True)
    listing.toggle(listing.rows(Filters(text="cudart"))[0].item, True)
    assert names(listing, Filters(text="cudart")) == ["3 RUN pip install gradients"]


def test_filters_of_vendor_and_waste(shown: Exploration) -> None:
    listing = Listing(shown.views["distributions"])
    vendor = names(listing, Filters(vendor="nvidia"))
    assert vendor == ["gradients 2.0", "nvidia-cuda-runtime-cu12 12.8.90"]
    wasted = names(listing, Filters(wasted=True))
    assert wasted == [
        "gradients 2.0",
        "  libgradients.so",
        "nvidia-cuda-runtime-cu12 12.8.90",
    ]
    assert names(listing, Filters(text="so", vendor="nvidia"))[:2] == [
        "gradients 2.0",
        "  libgradients.so",
    ]


def test_what_later_layers_did_can_be_hidden(shown: Exploration) -> None:
    listing = Listing(shown.views["layers"], is_ordered=True)
    listing.toggle_all()
    kinds = lambda *hidden: {  # noqa: E731
        row.item.kind for row in listing.rows(Filters(hidden=set(hidden)))
    }
    assert {"deleted", "replaced", "file"} <= kinds()
    assert "deleted" not in kinds("removed")
    assert "replaced" not in kinds("modified")
    assert kinds("added") == {"layer", "deleted", "replaced"}


def test_details_of_a_file_say_what_it_links_and_holds(shown: Exploration) -> None:
    item = named(shown.views["libraries"], "libgradients.so")
    lines = text(item, shown)
    assert "brought by: layer 3 of 4: RUN pip install gradients" in lines
    assert "needed: libc.so.6 → lib/x86_64-linux-gnu/libc.so.6" in lines
    assert "device code: sass 60.0 MB: sm_90" in lines
    assert "BM401: error" in lines and "evidence: nvidia" in lines


def test_details_of_a_layer_and_of_what_it_hides(shown: Exploration) -> None:
    layer = shown.views["layers"][1]
    assert "hidden: 35.0 MB that later layers delete or replace" in text(layer, shown)
    deleted = next(item for item in layer.children if item.kind == "deleted" and item.key)
    assert "deleted by layer 4 of 4: RUN rm -rf old" in text(deleted, shown)


def test_every_row_of_every_view_has_details_and_a_question(shown: Exploration) -> None:
    for view in VIEWS:
        listing = Listing(shown.views[view])
        listing.toggle_all()
        for row in listing.rows(Filters()):
            assert make_details(row.item, shown), row.item
            make_question(row.item, shown)


def test_why_is_asked_for_files_distributions_and_vendors(shown: Exploration) -> None:
    assert make_question(named(shown.views["distributions"], "gradients 2.0"), shown) == "gradients"
    assert make_question(named(shown.views["vendors"], "nvidia cuda"), shown) == "cuda"
    assert make_question(shown.views["layers"][0], shown) is None
    path = make_question(named(shown.views["libraries"], "libcudart.so.12"), shown)
    assert path is not None and path.endswith("/lib/libcudart.so.12")


def test_names_of_strangers_are_made_fit_to_be_shown() -> None:
    from buildmatrix.base.data import replace

    whole = image()
    evil = "opt/\x1b[31m[bold]red[/bold]\u202e.so"
    binaries = (replace(whole.binaries[2], path=evil), *whole.binaries[:2])
    shown = exploration(replace(whole, binaries=binaries, packaged={}))
    item = next(item for item in shown.views["libraries"] if item.key == evil)
    assert (item.note, item.name) == ("opt/\\x1b[31m[bold]red[", "bold]\\u202e.so")
    assert item.name.isprintable() and item.note.isprintable()
    assert all(line.text.isprintable() for line in make_details(item, shown))


def test_a_filter_keeps_all_that_match_of_a_hundred_thousand_libraries() -> None:
    shown = exploration(large(3_000))
    items = shown.views["libraries"] * 33
    listing = Listing(items, order="name")
    listing.rows(Filters())
    found = listing.rows(Filters(text="lib002999"))
    assert len(items) > 98_000 and len(found) == 33
