"""A preflight as JUnit, Markdown and a page: nothing that did not run is shown as passed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from xml.etree import ElementTree as ET

import pytest
from lxml import etree
from page_cases import ENDLESS, EVIL
from preflight_cases import hostile_preflight, preflight

from buildmatrix.preflight.baseline import compare_rung
from buildmatrix.reports import preflight_formats
from buildmatrix.reports.formats import PREFLIGHT, Destination, find_format
from buildmatrix.reports.preflight import Check, Preflight, PreflightTarget, RungOutcome
from buildmatrix.reports.preflight_formats import strips

SCHEMAS = [
    etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "schemas" / name))
    for name in ("jenkins-junit-10.xsd", "ant-junit.xsd")
]


def cases(document: Preflight) -> dict[tuple[str, str], ET.Element]:
    text = preflight_formats.render_junit(document, time=datetime(2026, 11, 22, tzinfo=UTC))
    for schema in SCHEMAS:
        schema.assertValid(etree.fromstring(text.encode()))
    root = ET.fromstring(text)
    return {(c.get("classname", ""), c.get("name", "")): c for c in root.iter("testcase")}


def test_each_rung_of_a_node_class_is_a_test_case() -> None:
    found = cases(preflight())
    tags = {name: [child.tag for child in case] for name, case in found.items()}
    gpu = "cuda12.8-py312-server on h200"
    assert tags == {
        ("cpu-py312-server", "rung static"): [],
        ("cpu-py312-server", "rung import"): [],
        ("cpu-py312-server", "rung batch"): [],
        ("cpu-py312-server", "rung cold-start"): ["failure"],
        ("rocm7.2-py312-server", "rung import"): ["failure"],
        ("rocm7.2-py312-server", "rung device"): ["skipped"],
        (gpu, "rung device on gpu-00"): [],
        (gpu, "rung device on gpu-01"): ["error"],
        (gpu, "rung compute"): ["skipped"],
    }
    (failure,) = found["rocm7.2-py312-server", "rung import"]
    assert "libGL.so.1 is missing" in (failure.get("message") or "")
    (skipped,) = found[gpu, "rung compute"]
    assert (skipped.get("message") or "").endswith("to be run on h200")
    assert found["cpu-py312-server", "rung import"].get("time") == "2.500"


def test_the_summary_of_a_job_begins_with_the_ladder_and_what_did_not_pass() -> None:
    text = preflight_formats.render_markdown(preflight())
    lines = text.splitlines()
    assert lines[2] == "**3 images: 4 of 9 rungs passed, 2 failed, 1 undecided, 2 not run**"
    assert lines[4] == (
        "| image | node class | static | import | device | compute | batch | cold-start |"
    )
    assert "| cpu-py312-server |  | passed | passed |  |  | passed | **failed** |" in lines
    cells = [
        "cuda12.8-py312-server",
        "h200",
        "",
        "",
        "**undecided** (1 of 2 nodes passed)",
        "not run",
    ]
    assert f"| {' | '.join(cells)} |  |  |" in lines
    head, _, folded = text.partition("<details>")
    assert "  - cv2 **failed**: libGL.so.1 is missing, which importing it needs" in head
    assert "to be run on h200" in head
    assert "numpy" not in head and "numpy" in folded


def test_the_page_has_each_rung_and_times_as_pictures_with_the_change() -> None:
    page = preflight_formats.render(preflight())
    assert "2 rungs failed" in page and "undecided (1 of 2 nodes passed)" in page
    assert "; on h200: cuda12.8-py312-server (compute)." in page
    assert page.count('<svg class="strip"') == 2
    # What a start takes stands before what a batch takes.
    assert page.index("cold-start of cpu-py312-server") < page.index("batch of cpu-py312-server")
    assert "p99 of the baseline 1.60 s" in page
    assert "p95 1.44 s is 1.31 times the 1.10 s of the baseline" in page


def test_a_picture_has_all_runs_from_nothing_to_the_slowest() -> None:
    (strip,) = strips(preflight().targets[0].rungs[3])
    runs = [int(column.text.split()[0]) for column in strip.columns]
    assert sum(runs) == 100
    assert all(0 <= c.x < 100 and 0 < c.height <= 100 for c in strip.columns)
    assert max(column.height for column in strip.columns) == 100
    marks = {mark.name: mark.x for mark in strip.marks}
    assert marks["p50"] < marks["p95"] < marks["p99"] <= 100
    assert marks["p50 of the baseline"] < marks["p50"]
    # One run is no picture, and neither are no times.
    for samples in ([1.0], [], [0.0, 0.0], ["a", "b"]):
        check = Check("x", "passed", values={"samples_s": cast("list[str | float]", samples)})
        assert strips(RungOutcome("batch", "passed", (check,))) == ()


def test_a_comparison_says_what_the_baseline_had() -> None:
    old = Check("torch", "passed", values={"p50_s": 1.0, "samples_s": [1.0, 1.0, 1.0]})
    new = Check("torch", "passed", values={"p50_s": 1.1, "samples_s": [1.1, 1.1, 1.1]})
    earlier = PreflightTarget("x", "cpu", (RungOutcome("cold-start", "passed", (old,)),))
    (check,) = compare_rung("cold-start", (new,), earlier)
    assert check.values == {"ratios": {"p50_s": 1.1}, "baseline": {"p50_s": 1.0}}
    (strip,) = strips(RungOutcome("cold-start", "passed", (new, check)))
    assert strip.changes == ("p50 1.10 s is 1.10 times the 1.00 s of the baseline",)


@pytest.mark.parametrize("format", ["junit", "markdown", "html"])
def test_hostile_texts_break_no_markup(format: str) -> None:
    text = find_format(PREFLIGHT, format).render(hostile_preflight(EVIL, ENDLESS), Destination())
    assert "<script>document" not in text
    if format == "junit":
        cases(hostile_preflight(EVIL, ENDLESS))


def test_nothing_that_ran_is_no_success() -> None:
    nobody = PreflightTarget("x", "cuda", (RungOutcome("device", "not-run"),))
    page = preflight_formats.render(Preflight(preflight().tool, (nobody,)))
    assert "Nothing ran" in page and '<section class="verdict not-run"' in page
