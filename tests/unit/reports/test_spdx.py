"""The report as SPDX 3.0.1: held by the project's schema, and read by its own Python model."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from bills import CUDART_RPM, WORST, bill, hostile, hostile_bill, part, target, vulnerable
from hypothesis import example, given, settings
from test_report_formats import report

from buildmatrix.base.data import replace
from buildmatrix.reports.formats import RUN, Destination, find_format
from buildmatrix.reports.run import Report

WHEN = datetime(2026, 11, 22, 23, 5, 6, tzinfo=UTC)


@cache
def validator() -> Any:
    """Of the compiled kind: Python's takes a second for each document."""
    import jsonschema_rs

    path = Path(__file__).parents[2] / "schemas" / "spdx-3.0.1.json"
    return jsonschema_rs.Draft202012Validator(json.loads(path.read_text()))


def rendered(one: Report) -> str:
    text = find_format(RUN, "spdx").render(one, Destination(time=WHEN))
    return text.encode("utf-8", "surrogatepass").decode()


def graph_of(one: Report) -> list[dict[str, Any]]:
    document = json.loads(rendered(one))
    validator().validate(document)
    graph: list[dict[str, Any]] = document["@graph"]
    return graph


def elements(graph: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one.get("name", one["spdxId"]): one for one in graph if one["type"] == kind}


def read(one: Report) -> Any:
    from spdx_python_model import v3_0_1 as model

    objects = model.SHACLObjectSet()
    model.JSONLDDeserializer().read(io.BytesIO(rendered(one).encode()), objects)
    return objects


def test_distributions_are_packages_with_hash_version_and_package_url() -> None:
    packages = elements(graph_of(bill()), "software_Package")
    demo = packages["demo"]
    assert demo["software_packageUrl"] == "pkg:pypi/demo@1.0"
    assert demo["verifiedUsing"] == [
        {"type": "Hash", "algorithm": "sha256", "hashValue": "ab" * 32}
    ]
    assert demo["comment"] == "bloat on cpu: 48 MB of CUDA"
    assert packages["serde@1.0.1"]["software_packageUrl"] == "pkg:cargo/serde@1.0.1"


def test_native_components_are_files_with_their_vendor() -> None:
    graph = graph_of(bill())
    (file,) = elements(graph, "software_File").values()
    assert file["name"] == "demo.libs/libcudart-9335f6a2.so.12.8.57"
    assert "no SBOM of the distribution names it" in file["comment"]
    assert elements(graph, "Organization")["nvidia"]["spdxId"] == file["suppliedBy"]


def test_packages_of_the_system_are_packages_of_their_vendor() -> None:
    one = target(part("demo"))
    assert one.composition is not None
    one = replace(one, composition=replace(one.composition, system=(CUDART_RPM,)))
    graph = graph_of(bill(targets=(one,)))
    package = elements(graph, "software_Package")["cuda-cudart-12-8"]
    assert package["software_packageUrl"] == CUDART_RPM.purl
    assert package["software_packageVersion"] == "1:12.8.90-1"
    assert package["comment"] == "license: NVIDIA EULA"
    assert elements(graph, "Organization")["NVIDIA Corporation"]["spdxId"] == package["suppliedBy"]
    (contains,) = (one for one in graph if one.get("spdxId", "").endswith("subject/contains"))
    assert package["spdxId"] in contains["to"]


def test_who_requires_what_is_a_relationship() -> None:
    graph = graph_of(bill())
    names = {one["spdxId"]: one["name"] for one in graph if "name" in one}
    required = {
        names[one["from"]]: [names[end] for end in one["to"]]
        for one in graph
        if one["type"] == "Relationship" and one["relationshipType"] == "dependsOn"
    }
    assert required == {"buildmatrix.toml": ["demo"], "demo": ["numpy"], "numpy": ["six"]}


def test_advisories_affect_their_distribution_and_say_what_to_do() -> None:
    graph = graph_of(bill(vulnerable()))
    (one,) = elements(graph, "security_Vulnerability").values()
    assert one["name"] == "CVE-2024-22195"
    (affects,) = elements(graph, "security_VexAffectedVulnAssessmentRelationship").values()
    assert affects["from"] == one["spdxId"]
    assert affects["to"] == [elements(graph, "software_Package")["jinja2"]["spdxId"]]
    assert affects["security_actionStatement"].startswith("write `replace")
    waived = graph_of(bill(vulnerable(waived="no templates of users")))
    (accepted,) = elements(waived, "security_VexAffectedVulnAssessmentRelationship").values()
    assert accepted["security_actionStatement"] == "accepted: no templates of users"


def test_the_model_of_spdx_reads_the_same() -> None:
    from spdx_python_model import v3_0_1 as model

    objects = read(bill(vulnerable()))
    packages = {one.name: one for one in objects.foreach_type(model.software_Package)}
    assert packages["demo"].software_packageVersion == "1.0"
    (document,) = objects.foreach_type(model.SpdxDocument)
    (sbom,) = document.rootElement
    assert isinstance(sbom, model.software_Sbom)
    assert not objects.missing_ids
    (creation,) = objects.foreach_type(model.CreationInfo)
    assert creation.created == WHEN


def test_a_report_without_anything_is_a_document_too() -> None:
    graph_of(report())
    read(report())


def test_the_same_report_gives_the_same_bytes() -> None:
    assert rendered(bill()) == rendered(bill())


@given(hostile)
@example("")
@example(WORST)
@settings(max_examples=12, deadline=None)
def test_any_text_fits(text: str) -> None:
    one = hostile_bill(text)
    graph_of(one)
    assert not read(one).missing_ids
