"""A comparison and drift as table, JSON and Markdown."""

from __future__ import annotations

import json

import jsonschema
import pytest
from comparison_cases import (
    difference,
    finding,
    installed,
    judged,
    library,
    lock,
    pin,
    target,
    tree,
)

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.commands.diff import compare
from buildmatrix.commands.drift import find_drifts
from buildmatrix.facts.inventory.model import Layer, Unread
from buildmatrix.reports import diff_sections
from buildmatrix.reports import json_form as comparison_json
from buildmatrix.reports.diff import Comparison, Drifts
from buildmatrix.reports.diff_sections import MOST
from buildmatrix.reports.formats import document_schema


@pytest.fixture
def everything() -> Comparison:
    before = tree(
        installed("gone 1.0"),
        installed("nvidia-cudnn-cu12 8.9.7"),
        files=[
            library(
                "nvidia/cudnn/lib/libcudnn.so.8", "nvidia-cudnn-cu12 8.9.7", soname="libcudnn.so.8"
            ),
            library("usr/lib/libk.so", archs=["sm_70"]),
        ],
        layers=[Layer("sha256:1", "RUN a", 10)],
        environment={"A": "1"},
        size=100,
    )
    after = tree(
        installed("nvidia-cudnn-cu12 9.1.0"),
        files=[
            library(
                "nvidia/cudnn/lib/libcudnn.so.9", "nvidia-cudnn-cu12 9.1.0", soname="libcudnn.so.9"
            ),
            library("usr/lib/libk.so", archs=["sm_90"]),
        ],
        layers=[Layer("sha256:2", "RUN a", 5000)],
        environment={"A": "2"},
        size=5_000,
    )
    facts = difference(before, after)
    told = compare(
        judged(finding("a"), finding("c")), judged(finding("b"), finding("c", "warning"))
    )
    return replace(
        facts,
        findings=told.findings,
        after=replace(facts.after, unread=(Unread("etc/x", "no permission"),)),
    )


def table(comparison: Comparison, **options: bool) -> str:
    return diff_sections.render_table(comparison, width=100, color=False, **options)


def test_the_json_is_what_its_schema_says(everything: Comparison) -> None:
    for one in (everything, compare(judged(), judged())):
        document = json.loads(comparison_json.render(one))
        jsonschema.validate(document, document_schema("diff"))
    assert document["schema"] == "buildmatrix/diff/1"
    assert document["libraries"] is None, "what was not compared is null"


def test_the_same_comparison_gives_the_same_bytes(everything: Comparison) -> None:
    assert comparison_json.render(everything) == comparison_json.render(replace(everything))


def test_the_table_tells_new_findings_first_and_every_kind_of_difference(
    everything: Comparison,
) -> None:
    text = " ".join(table(everything).split())
    parts = [
        "new error BM401 foreign-device-code xgboost 3.2.0",
        "changed error -> warning BM401",
        "gone error BM401",
        "distributions (2 of 2 differ)",
        "- gone 1.0",
        "8.9.7 -> 9.1.0 (major)",
        "libcudnn 8.9.7 -> 9.1.0 MAJOR cuda, nvidia-cudnn-cu12",
        "everything (nvidia) gained sm_90, lost sm_70",
        "everything 100 B -> 5.0 kB",
        "layer 1 10 B -> 5.0 kB RUN a",
        "A 1 -> 2",
        "not read in docker:demo:2",
        "etc/x: no permission",
        "1 finding new, 1 gone, 0 as before",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_long_list_is_cut_with_a_count_and_all_of_it_can_be_had() -> None:
    before = tree()
    names = [f"d{n:03}" for n in range(MOST + 25)]
    after = tree(
        *(installed(f"{name} 1.0", size=10_000 if name == "d050" else 10) for name in names)
    )
    cut, whole = table(difference(before, after)), table(difference(before, after), every=True)
    assert f"({MOST} of {MOST + 25})" in cut and "--all lists everything" in cut
    assert "d050" in cut, "the largest are told"
    assert sum(line.startswith("  + d") for line in cut.splitlines()) == MOST
    assert all(name in whole for name in names)


def test_of_many_differences_another_version_is_told_before_other_bytes() -> None:
    names = [f"d{n:03}" for n in range(MOST + 25)]
    before = tree(*(installed(f"{name} 1.0", record="a" * 64) for name in names))
    after = tree(
        *(installed(f"{name} {2 if name == 'd054' else '1.0'}", record="b" * 64) for name in names)
    )
    assert "d054  1.0 -> 2 (major)" in table(difference(before, after))


def test_names_that_nobody_vouches_for_can_neither_repaint_a_terminal_nor_a_page() -> None:
    evil = "x\x1b[2J<script>|*"
    after = tree(replace(installed("x 1.0"), name=evil), environment={"\x07E": evil})
    found = difference(tree(), after)
    assert "\x1b" not in table(found) and "\x07" not in table(found)
    page = diff_sections.render_markdown(found)
    assert "<script>" not in page and "\x1b" not in page
    assert json.loads(comparison_json.render(found))["distributions"]["changes"][0]["name"] == evil


def test_the_markdown_shows_what_is_new_and_folds_the_rest(everything: Comparison) -> None:
    page = diff_sections.render_markdown(everything)
    assert page.startswith("## buildmatrix: what changed\n")
    assert "- **new error BM401** foreign-device-code" in page
    assert page.count("<details>") == page.count("</details>") > 3
    assert page.index("new error") < page.index("<details>")


@pytest.fixture
def drift() -> Drifts:
    return find_drifts(
        [
            (target("cpu-a"), lock(pin("numpy 2.3.0", "cpu.in:2"), pin("torch 2.9.0+cpu"))),
            (target("cuda12.8-a"), lock(pin("numpy 2.1.0", "base.in:9"), pin("torch 2.9.0+cu128"))),
        ],
        load(),
        unresolved=["rocm6.4-a: no wheel"],
        stale=["cpu-a: cpu.in changed"],
    )


def test_drift_is_told_with_its_chains_in_every_format(drift: Drifts) -> None:
    text = diff_sections.render_drift_table(drift, width=100, color=False)
    page = diff_sections.render_drift_markdown(drift)
    document = json.loads(comparison_json.render(drift))
    jsonschema.validate(document, document_schema("drift"))
    assert "base.in:9 -> numpy 2.1.0" in text
    assert "rocm6.4-a: no wheel" in text and "rocm6.4-a: no wheel" in page
    assert "2 targets: 1 distribution without a reason, 1 with one, 0 the same" in text
    assert "base.in:9 &rarr; numpy 2.1.0" in page
    assert [one["name"] for one in document["drift"]] == ["numpy"]
    assert [one["name"] for one in document["explained"]] == ["torch"]
    assert document["stale"] == ["cpu-a: cpu.in changed"]
