"""The report as a CycloneDX bill of materials, checked against the published schema."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_report_formats import finding, report

from buildmatrix.reports.run import cyclonedx
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Verdict
from buildmatrix.vulnerabilities.model import Advisory

XMLATTR = Advisory("CVE-2024-22195", ("GHSA-h5c8-rqwp-cp95",), ("3.1.3",), "xmlattr filter")
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


@pytest.fixture(autouse=True)
def no_warnings() -> None:
    warnings.simplefilter("error")


def parsed(one: Report) -> dict:
    text = cyclonedx.render(one)
    problem = VALIDATOR.validate_str(text)
    assert problem is None, problem.data.message
    return json.loads(text)


def vulnerable(**changes):
    return replace(
        finding("BM801", "known-vulnerability", fingerprint="1" * 32),
        advisories=(XMLATTR,),
        **changes,
    )


def test_each_distribution_is_a_component_with_its_purl_and_verdict() -> None:
    (one,) = parsed(report())["components"]
    assert one["purl"] == "pkg:pypi/xgboost@3.4.1"
    properties = {item["name"]: item["value"] for item in one["properties"]}
    assert properties["buildmatrix:verdict"] == "bloat"
    assert properties["buildmatrix:foreign-bytes"] == "48000000"


def test_a_distribution_of_two_backends_is_one_component_with_both_verdicts() -> None:
    verdicts = [
        Verdict("torch", "2.9.0+cu128", backend, verdict, "because", sha256="ab" * 32)
        for backend, verdict in (("cuda", "ok"), ("cpu", "bloat"))
    ]
    one = replace(report(), distributions=tuple(verdicts))
    (component,) = parsed(one)["components"]
    properties = {item["name"]: item["value"] for item in component["properties"]}
    assert component["purl"] == "pkg:pypi/torch@2.9.0%2Bcu128"
    assert component["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert properties["buildmatrix:verdict"] == "bloat"
    assert properties["buildmatrix:verdict:cuda"] == "ok"
    assert properties["buildmatrix:verdict:cpu"] == "bloat"


def test_a_vulnerability_names_what_it_affects_and_what_to_do() -> None:
    document = parsed(report(vulnerable()))
    (one,) = document["vulnerabilities"]
    assert (one["id"], one["source"]) == ("CVE-2024-22195", {"name": "NVD"})
    assert one["references"] == [{"id": "GHSA-h5c8-rqwp-cp95", "source": {"name": "GitHub"}}]
    assert one["affects"] == [{"ref": document["components"][0]["bom-ref"]}]
    assert "replace = { xgboost" in one["recommendation"]
    assert "analysis" not in one


def test_one_flaw_of_two_targets_is_listed_once() -> None:
    other = vulnerable(target="cpu-py312-server")
    assert len(parsed(report(vulnerable(), other))["vulnerabilities"]) == 1


def test_an_accepted_vulnerability_says_by_whom() -> None:
    (one,) = parsed(report(vulnerable(waived="ours (team)")))["vulnerabilities"]
    assert one["analysis"] == {"detail": "ours (team)", "response": ["will_not_fix"]}


def test_what_has_a_flaw_is_a_component_also_without_a_verdict() -> None:
    one = replace(report(vulnerable()), distributions=())
    assert [item["name"] for item in parsed(one)["components"]] == ["xgboost"]


def test_nothing_is_claimed_about_dependencies_or_time() -> None:
    document = parsed(report())
    assert "dependencies" not in document
    assert "timestamp" not in document["metadata"]


def test_the_same_report_gives_the_same_bytes_and_another_one_another_number() -> None:
    assert cyclonedx.render(report(vulnerable())) == cyclonedx.render(report(vulnerable()))
    numbers = {parsed(one)["serialNumber"] for one in (report(), report(vulnerable()))}
    assert len(numbers) == 2


@settings(max_examples=25, deadline=None)
@example("/")
@given(st.text(alphabet=st.characters(codec=None), max_size=20))
def test_any_name_gives_a_valid_document(text: str) -> None:
    flaw = Advisory(text, (text,), (text,), text)
    one = replace(vulnerable(distribution=text, version=text), advisories=(flaw,))
    parsed(replace(report(one), subject=text))
