"""The report as JUnit XML: what CI systems count, and what XML cannot hold."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report_formats import finding, report, result

from buildmatrix.inventory.model import Inventory, Unread
from buildmatrix.reports.run import junit
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import TargetResult

#: Jenkins' junit-10.xsd, as far as it is used here: element -> attributes, children.
SHAPE: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testcase"}),
    "testcase": (
        {"classname", "name", "time", "file", "line"},
        {"skipped", "error", "failure", "system-out"},
    ),
    "skipped": ({"message"}, set()),
    "error": ({"message", "type"}, set()),
    "failure": ({"message", "type"}, set()),
    "system-out": (set(), set()),
}


def check_shape(element: ET.Element) -> None:
    attributes, children = SHAPE[element.tag]
    assert set(element.keys()) <= attributes, element.attrib
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        check_shape(child)


def parsed(one: Report) -> ET.Element:
    root = ET.fromstring(junit.render(one))
    check_shape(root)
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite)
        for attribute, tag in (("failures", "failure"), ("errors", "error")):
            assert int(suite.get(attribute, "")) == len(suite.findall(f"testcase/{tag}"))
    for attribute in ("tests", "failures", "errors"):
        assert int(root.get(attribute, "")) == sum(int(s.get(attribute, "")) for s in root)
    return root


def case(root: ET.Element, name: str) -> ET.Element:
    (one,) = [item for item in root.iter("testcase") if item.get("name") == name]
    return one


def test_each_target_is_a_suite_of_its_gates_distributions_and_findings() -> None:
    root = parsed(report(finding(), targets=(result(), result("cpu-py312-server"))))
    assert [suite.get("name") for suite in root] == ["cpu-py311-server", "cpu-py312-server"]
    assert [item.get("name") for item in root[0]] == [
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
    assert (one.get("file"), one.get("line")) == ("images/requirements/base.in", "3")
    failure = one.find("failure")
    assert failure is not None and failure.text is not None
    assert "images/requirements/base.in:3 -> xgboost 3.4.1" in failure.text
    assert "fix: write `replace" in failure.text


@pytest.mark.parametrize("severity", ["warning", "note"])
def test_what_fails_no_run_fails_no_test_but_is_told(severity) -> None:
    root = parsed(report(finding(severity=severity)))
    assert root.get("failures") == "0"
    told = case(root, "BM401 foreign-device-code xgboost 3.4.1").findtext("system-out")
    assert told is not None and told.startswith(f"{severity}: ")


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
    assert root.get("errors") == "2"
    assert case(root, "BM902 unread-file opt/a.so").find("error") is not None
    assert case(root, "read opt/b.so").find("error") is not None


def test_what_belongs_to_no_target_has_a_suite_of_its_own() -> None:
    stale = finding("BM901", "expired-or-unused-waiver", target="", distribution=None)
    assert parsed(report(stale))[-1].get("name") == "this run"


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
def test_any_name_gives_xml_that_can_be_read_again(text: str) -> None:
    one = replace(finding(message=text, chain=(text, text)), distribution=text, version=text)
    target = replace(result(), id=text, error=text)
    tree = Inventory(unread=(Unread(text, text),))
    parsed(report(replace(one, target=text), targets=(target,), inventories=[tree]))


def test_the_same_report_gives_the_same_bytes() -> None:
    assert junit.render(report(finding())) == junit.render(report(finding()))
