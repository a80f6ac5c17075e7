"""A fleet in which every text is hostile, in every format; and a page that is told too much."""

from __future__ import annotations

import json
import re

import fleet_cases
import pytest
from hypothesis import example, given, settings
from test_hostile_report import OBEYED, SECRET, SNIPPETS, Tags, hostile, is_hidden

from buildmatrix.base.data import replace
from buildmatrix.base.text import safe
from buildmatrix.reports import fleet_html
from buildmatrix.reports.fleet import FleetFinding
from buildmatrix.reports.fleet_answer import FleetAnswer
from buildmatrix.reports.fleet_assembly import assemble
from buildmatrix.reports.formats import FLEET, Destination, find_format

TEXTS = [item.name for item in FLEET if item.name != "parquet"]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("every", [False, True])
@given(text=hostile)
@example(text="".join(SNIPPETS))
@example(text=f"{SECRET}<script>alert(1)</script>")
@settings(max_examples=6, deadline=None)
def test_no_format_of_a_fleet_holds_what_is_obeyed(text: str, every: bool, name: str) -> None:
    form = find_format(FLEET, name)
    report = fleet_cases.hostile(text, f"{text} ")
    printed = safe(form.render(report, Destination(every=every, color=every)), form.syntax)
    assert not OBEYED.search(printed)
    assert not any(char for char in re.sub(r"\x1b\[[\d;]*m", "", printed) if is_hidden(char))
    assert "SECRET" not in printed
    if name != "html":
        assert not any(line.startswith("FORGED") for line in printed.splitlines())
    if name == "json":
        json.loads(printed)
    if name == "jsonl":
        assert len([json.loads(line) for line in printed.splitlines()]) == len(report.results)
    if name == "html":
        tags = Tags()
        tags.feed(printed)
        assert tags.names.count("script") == 1
        assert data_of(printed)["rows"]
    if name == "markdown":
        assert "<script" not in printed.replace(r"\<script", "")
        assert not re.search(r"(?<!\w)@everyone", printed.replace("\\&", ""))
        assert not re.search(r"(?m)^#+ heading", printed)


def data_of(page: str) -> dict:
    """What a page has embedded: there is no markup in it."""
    (text,) = re.findall(r'<template id="data">(.*?)</template>', page, re.DOTALL)
    assert not re.search(r"[<>]", text)
    return json.loads(text.replace("&#35;", "#").replace("&#58;", ":"))


def test_a_page_has_every_result_once_and_what_images_share_once() -> None:
    report = fleet_cases.fleet(300)
    data = data_of(fleet_html.render(report))
    assert [row[2] for row in data["rows"]] == [result.digest for result in report.results]
    findings = {finding for result in report.results for finding in result.findings}
    assert len(data["findings"]) == len(findings)
    assert len(data["places"]) == 1


def test_a_page_that_would_be_too_large_has_causes_in_place_of_findings(monkeypatch) -> None:
    def finding(place: int, number: int) -> FleetFinding:
        return FleetFinding(
            rule="BM401", severity="error", vendor="nvidia", distribution="torch",
            message=f"image {place} has device code in file {number}", fix="take another torch",
            size=number,
        )  # fmt: skip

    results = [
        replace(result, findings=tuple(finding(place, number) for number in range(20)))
        for place, result in enumerate(fleet_cases.results(100))
    ]
    report = assemble("x", results, "2026-11-20")
    assert len(data_of(fleet_html.render(report))["findings"]) == 2000
    monkeypatch.setattr(fleet_html, "MOST_BYTES", 150_000)
    text, is_whole = fleet_html.embed(FleetAnswer(report))
    assert (is_whole, len(json.loads(text)["findings"])) == (False, 1)
    page = fleet_html.render(report)
    assert len(data_of(page)["rows"]) == 100
    assert "They have too many findings for a page" in page
    assert "They have too many findings" not in fleet_html.render(fleet_cases.clean())
