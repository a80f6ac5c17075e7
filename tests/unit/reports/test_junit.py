"""The report as JUnit XML: what CI systems count, and what XML cannot hold."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path, PurePath
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml
from lxml import etree
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.model import TargetResult
from buildmatrix.reports import ci
from buildmatrix.reports.run import Report

SCHEMAS = [
    etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "schemas" / name))
    for name in ("jenkins-junit-10.xsd", "ant-junit.xsd")
]
WHEN = datetime(2026, 11, 22, 23, 5, 6, tzinfo=UTC)


def parsed(one: Report) -> ET.Element:
    text = ci.render_junit(one, time=WHEN)
    for schema in SCHEMAS:
        schema.assertValid(etree.fromstring(text.encode()))
    root = ET.fromstring(text)
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        for attribute, tag in (("failures", "failure"), ("errors", "error")):
            assert int(suite.get(attribute, "")) == len(suite.findall(f"testcase/{tag}"))
    return root


def said(suite: ET.Element) -> str:
    return suite.findtext("system-out") or ""


def case(root: ET.Element, name: str) -> ET.Element:
    (one,) = [item for item in root.iter("testcase") if item.get("name") == name]
    return one


def test_each_target_is_a_suite_of_its_gates_distributions_and_findings() -> None:
    root = parsed(report(finding(), targets=(result(), result("cpu-py312-server"))))
    assert [suite.get("name") for suite in root] == ["cpu-py311-server", "cpu-py312-server"]
    assert [item.get("name") for item in root[0].iter("testcase")] == [
        "gate lock",
        "gate build",
        "gate scan",
        "gate smoke",
        "distribution xgboost 3.4.1",
        "BM401 foreign-device-code xgboost 3.4.1",
    ]
    assert case(root[0], "gate build").get("time") == "75.200"


def test_an_error_fails_with_its_chain_fix_and_line() -> None:
    one = case(parsed(report(finding())), "BM401 foreign-device-code xgboost 3.4.1")
    failure = one.find("failure")
    assert failure is not None and failure.text is not None
    place = "images/requirements/base.in:3: "
    assert failure.get("message", "").startswith(place) and failure.text.startswith(place)
    assert "images/requirements/base.in:3 -> xgboost 3.4.1" in failure.text
    assert "fix: write `replace" in failure.text


def test_a_place_is_a_path_in_the_repository_and_a_finding_without_one_has_none() -> None:
    home = PurePath("/home/me/repository")
    bare = finding("BM602", "foreign-environment", chain=(), fingerprint="2" * 32)
    text = ci.render_junit(report(finding(), bare), time=WHEN, root=home / "sub", top=home)
    messages = [item.get("message", "") for item in ET.fromstring(text).iter("failure")]
    assert messages == [
        f"sub/images/requirements/base.in:3: {finding().message}",
        bare.message,
    ]


@pytest.mark.parametrize("severity", ["warning", "note"])
def test_what_fails_no_run_fails_no_test_but_is_told(severity) -> None:
    root = parsed(report(finding(severity=severity)))
    (suite,) = root
    assert suite.get("failures") == "0"
    name = "BM401 foreign-device-code xgboost 3.4.1"
    assert len(case(root, name)) == 0
    assert f"{name}: {severity}: images/requirements/base.in:3: " in said(suite)


def test_what_is_accepted_is_skipped_with_its_reason() -> None:
    root = parsed(report(finding(waived="accepted (team)")))
    skipped = case(root, "BM401 foreign-device-code xgboost 3.4.1").find("skipped")
    assert skipped is not None and skipped.get("message") == "accepted: accepted (team)"


def test_gates_are_never_passed_when_they_did_not_hold() -> None:
    root = parsed(report(targets=(result(lock="failed", build="undecided", scan="not-run"),)))
    assert case(root, "gate lock").find("failure") is not None
    assert case(root, "gate build").find("error") is not None
    assert case(root, "gate scan").find("skipped") is not None
    assert len(case(root, "gate smoke")) == 0


def test_the_reason_of_a_failed_build_is_in_its_test_case() -> None:
    broken = TargetResult("cpu", "cpu", {"build": "failed"}, error="step 3/7 failed\n  | no space")
    failure = case(parsed(report(targets=(broken,))), "gate build").find("failure")
    assert failure is not None and "no space" in (failure.text or "")
    assert failure.get("message") == "build failed: step 3/7 failed"


def test_what_could_not_be_read_is_an_error_once() -> None:
    tree = Inventory(unread=(Unread("opt/a.so", "it ends early"), Unread("opt/b.so", "denied")))
    told = finding("BM902", "unread-file", severity="warning", path="opt/a.so", distribution=None)
    root = parsed(report(told, inventories=[tree]))
    assert [suite.get("errors") for suite in root] == ["1", "1"]
    assert case(root, "BM902 unread-file opt/a.so").find("error") is not None
    assert case(root, "read opt/b.so").find("error") is not None


def test_what_belongs_to_no_target_has_a_suite_of_its_own() -> None:
    stale = finding("BM901", "expired-or-unused-waiver", target="", distribution=None)
    assert parsed(report(stale))[-1].get("name") == "this run"


def test_another_reader_counts_the_same(tmp_path: Path) -> None:
    waived = finding("BM101", "foreign-dependency", waived="accepted", fingerprint="1" * 32)
    note = finding("BM501", "foreign-dlopen", severity="note", fingerprint="2" * 32)
    path = tmp_path / "junit.xml"
    path.write_text(ci.render_junit(report(finding(), waived, note), time=WHEN))
    read = JUnitXml.fromfile(str(path))
    (suite,) = read
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (8, 1, 0, 1)
    assert [one.name for one in suite if one.result and one.result[0].type == "BM401"] == [
        "BM401 foreign-device-code xgboost 3.4.1"
    ]
    assert suite.timestamp == "2026-11-22T23:05:06"


def test_a_target_without_a_name_and_odd_seconds_still_fit() -> None:
    parsed(report(targets=(replace(result(), id="", seconds=-1.0),)))
    parsed(report(targets=(replace(result(), id=" a  b ", seconds=1e12),)))


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
def test_any_name_gives_xml_that_can_be_read_again(text: str) -> None:
    one = replace(finding(message=text, chain=(text, text)), distribution=text, version=text)
    target = replace(result(), id=text, error=text)
    tree = Inventory(unread=(Unread(text, text),))
    parsed(report(replace(one, target=text), targets=(target,), inventories=[tree]))


def test_the_same_report_gives_the_same_bytes() -> None:
    assert ci.render_junit(report(finding())) == ci.render_junit(report(finding()))
