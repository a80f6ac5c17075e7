"""The report as a CycloneDX bill of materials, checked against the published schema."""

from __future__ import annotations

import json
import warnings

import pytest
from bills import CUDART_RPM
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.judge.composition import (
    Composition,
    DistributionBytes,
    NativeComponent,
    SbomComponent,
)
from buildmatrix.judge.model import Advisory, Verdict
from buildmatrix.reports import bill, cyclonedx
from buildmatrix.reports.run import Report

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


CUDART = NativeComponent(
    "demo.libs/libcudart-9335f6a2.so.12.8.57",
    "nvidia",
    "runtime",
    ("bundled",),
    "high",
    700_000,
    "libcudart-9335f6a2.so.12",
    "12.8.57",
    in_sbom=False,
)
KERNELS = NativeComponent(
    "demo/kernels.so",
    "nvidia",
    "kernel",
    ("device-code", "static"),
    "medium",
    details=(".nv_fatbin: sm_80",),
    architectures=("sm_80",),
)
SBOM = (
    SbomComponent("pkg:rpm/almalinux/libgomp@8.5.0-26.el8", False),
    SbomComponent("pkg:cargo/serde@1.0.1", None),
)


def part(name: str, *required_by: str, **more) -> DistributionBytes:
    more = {"asker": "" if required_by else f"{name} 1.0", "line": "base.in:1"} | more
    return DistributionBytes(
        name, "1.0", size=1, wasted=0, vendors=(), required_by=required_by, **more
    )


def with_parts(*parts: DistributionBytes) -> Report:
    target = replace(result(), composition=Composition(parts))
    return replace(report(targets=(target,)), distributions=())


def properties_of(component: dict) -> dict[str, str]:
    return {item["name"]: item["value"] for item in component.get("properties", ())}


def test_native_components_lie_in_their_distribution_with_what_proves_them() -> None:
    document = parsed(with_parts(part("demo", libraries=(CUDART, KERNELS), sbom=SBOM)))
    (demo,) = document["components"]
    inside = {one["name"]: one for one in demo["components"]}
    assert set(inside) == {"libcudart-9335f6a2.so.12", "kernels.so", "libgomp", "serde"}
    library = inside["libcudart-9335f6a2.so.12"]
    assert (library["type"], library["version"]) == ("library", "12.8.57")
    assert library["supplier"] == {"name": "nvidia"}
    assert library["evidence"]["occurrences"] == [{"location": CUDART.path}]
    (identity,) = library["evidence"]["identity"]
    assert identity["methods"] == [{"technique": "filename", "confidence": 0.9, "value": "bundled"}]
    assert properties_of(library)["buildmatrix:original-sha256-begins"] == "9335f6a2"
    kernels = inside["kernels.so"]
    assert kernels["type"] == "file"
    assert properties_of(kernels)["buildmatrix:device-code"] == "sm_80"
    assert {one["technique"] for one in kernels["evidence"]["identity"][0]["methods"]} == {
        "binary-analysis"
    }


def test_packages_of_the_system_are_components_of_the_image() -> None:
    one = with_parts(part("demo"))
    made = one.targets[0].composition
    assert made is not None
    system = replace(made, system=(CUDART_RPM,))
    one = replace(one, targets=(replace(one.targets[0], composition=system),))
    (component,) = (it for it in parsed(one)["components"] if it["name"] == "cuda-cudart-12-8")
    assert component == {
        "bom-ref": f"system:{CUDART_RPM.purl}",
        "licenses": [{"license": {"name": "NVIDIA EULA"}}],
        "name": "cuda-cudart-12-8",
        "purl": CUDART_RPM.purl,
        "supplier": {"name": "NVIDIA Corporation"},
        "type": "library",
        "version": "1:12.8.90-1",
    }


def test_what_sbom_and_bytes_lack_of_one_another_is_said() -> None:
    (demo,) = parsed(with_parts(part("demo", libraries=(CUDART, KERNELS), sbom=SBOM)))["components"]
    said = properties_of(demo)
    assert said["buildmatrix:sbom:not-named"] == CUDART.path
    assert said["buildmatrix:sbom:not-seen"] == "pkg:rpm/almalinux/libgomp@8.5.0-26.el8"
    inside = {one["name"]: one for one in demo["components"]}
    assert inside["libgomp"]["purl"] == "pkg:rpm/almalinux/libgomp@8.5.0-26.el8"
    seen = "buildmatrix:sbom:seen"
    assert properties_of(inside["libgomp"])[seen] == "no library has a name like it"
    assert seen not in properties_of(inside["serde"])


def test_the_graph_is_that_of_distributions_alone() -> None:
    one = with_parts(part("demo", libraries=(CUDART,)), part("numpy", "demo"), part("six", "numpy"))
    assert parsed(one)["dependencies"] == [
        {"ref": "subject", "dependsOn": ["pypi:demo@1.0"]},
        {"ref": "pypi:demo@1.0", "dependsOn": ["pypi:numpy@1.0"]},
        {"ref": "pypi:numpy@1.0", "dependsOn": ["pypi:six@1.0"]},
        {"ref": "pypi:six@1.0"},
    ]
    assert "dependencies" not in parsed(report()), "it says nothing of who requires what"


def test_libraries_that_belong_to_no_distribution_stand_for_themselves() -> None:
    (one,) = parsed(with_parts(part("", libraries=(CUDART,), line="", asker="")))["components"]
    assert one["name"] == "libcudart-9335f6a2.so.12"


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
@example("\x1b::error::\u202e\ufffe\x00 [](" + "a" * 10_000)
@settings(max_examples=40, deadline=None)
def test_any_text_in_native_components_fits_the_schema(text: str) -> None:
    warnings.simplefilter("ignore", UserWarning)
    library = NativeComponent(
        text, text, text, ("bundled", "tool"), "low", 1, text, text, (text,), (text,), False
    )
    sbom = (SbomComponent(text, None), SbomComponent(f"pkg:{text}/{text}@{text}", False))
    parts = [part(text, text, libraries=(library,), sbom=sbom), part("b", text, sbom=sbom)]
    parsed(with_parts(*parts, part("", libraries=(library,))))


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


@pytest.mark.parametrize(
    ("name", "purl"),
    [
        ("npm:@huggingface/transformers", "pkg:npm/%40huggingface/transformers@3.8.1"),
        ("npm:socket.io", "pkg:npm/socket.io@3.8.1"),
        ("Socket_io", "pkg:pypi/socket-io@3.8.1"),
    ],
)
def test_packages_of_npm_have_a_purl_of_their_own(name: str, purl: str) -> None:
    assert bill.purl(name, "3.8.1") == purl


def test_a_package_of_conda_has_a_package_url_without_its_build() -> None:
    assert bill.purl("conda:_openmp_mutex", "4.5+6_gnu") == "pkg:conda/_openmp_mutex@4.5"
