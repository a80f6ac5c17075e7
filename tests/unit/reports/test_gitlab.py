"""What GitLab reads: code quality, and known vulnerabilities."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import jsonschema
import pytest
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.judge.model import Advisory, Finding, Fix
from buildmatrix.reports.formats import RUN, Destination, find_format
from buildmatrix.reports.run import Report

HOME = PurePath("/work/project")
TO = Destination(root=HOME / "sub", top=HOME, time=datetime(2026, 11, 22, 23, 0, tzinfo=UTC))
TEXT = {"type": "string", "minLength": 1}
#: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
QUALITY = {
    "type": "array",
    "items": {
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": TEXT,
            "check_name": TEXT,
            "fingerprint": TEXT,
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "required": ["path", "lines"],
                "properties": {
                    # Relative, and without `./`.
                    "path": {"type": "string", "pattern": r"^[^./]"},
                    "lines": {
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
TIME = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}$"}
PROGRAM = {
    "required": ["id", "name", "version", "vendor"],
    "properties": {
        **dict.fromkeys(("id", "name", "version"), TEXT),
        "vendor": {"required": ["name"], "properties": {"name": TEXT}},
    },
}
#: What version 15.2.1 of GitLab's schema asks for, as far as we write it.
SCANNING = {
    "required": ["scan", "version", "vulnerabilities"],
    "properties": {
        "version": {"const": "15.2.1"},
        "schema": {"type": "string", "pattern": "^https?://.+"},
        "scan": {
            "required": ["analyzer", "end_time", "scanner", "start_time", "status", "type"],
            "properties": {
                "analyzer": PROGRAM,
                "scanner": PROGRAM,
                "start_time": TIME,
                "end_time": TIME,
                "status": {"enum": ["success", "failure"]},
                "type": {"const": "dependency_scanning"},
                "messages": {
                    "items": {
                        "required": ["level", "value"],
                        "properties": {"level": {"enum": ["info", "warn", "fatal"]}, "value": TEXT},
                    }
                },
            },
        },
        "vulnerabilities": {
            "type": "array",
            "items": {
                "required": ["id", "identifiers", "location"],
                "properties": {
                    "id": TEXT,
                    "name": {"type": "string", "maxLength": 255},
                    "description": {"type": "string", "maxLength": 1048576},
                    "severity": {"enum": ["Info", "Unknown", "Low", "Medium", "High", "Critical"]},
                    "solution": {"type": "string", "maxLength": 7000},
                    "identifiers": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "required": ["type", "name", "value"],
                            "properties": {
                                **dict.fromkeys(("type", "name", "value"), TEXT),
                                "url": {"type": "string", "pattern": "^(https?|ftp)://.+"},
                            },
                        },
                    },
                    "location": {
                        "required": ["file", "dependency"],
                        "properties": {
                            "file": TEXT,
                            "dependency": {
                                "required": ["package", "version"],
                                "properties": {
                                    "package": {"required": ["name"], "properties": {"name": TEXT}},
                                    "version": TEXT,
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def quality(document: Report, to: Destination = TO) -> Any:
    issues = json.loads(find_format(RUN, "codequality").render(document, to))
    jsonschema.validate(issues, QUALITY)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    return issues


def scanning(document: Report) -> Any:
    made = json.loads(find_format(RUN, "dependency-scanning").render(document, TO))
    jsonschema.validate(made, SCANNING)
    return made


def vulnerable(**changes: Any) -> Finding:
    advisories = (
        Advisory("PYSEC-2024-60", ("CVE-2024-22195", "GHSA-h5c8"), ("3.1.3",), "Cross-site"),
        Advisory("OTHER-1", (), ()),
    )
    fix = Fix("upgrade", "require `jinja2>=3.1.6`", None)
    made = finding("BM801", "known-vulnerability", distribution="jinja2", path=None, fix=fix)
    return replace(made, advisories=advisories, version="3.1.2", **changes)


def test_an_issue_has_its_place_seen_from_the_top_of_the_repository() -> None:
    (issue,) = quality(report(finding()))
    assert issue["location"] == {
        "path": "sub/images/requirements/base.in",
        "lines": {"begin": 3},
    }
    assert (issue["check_name"], issue["severity"]) == ("BM401", "critical")
    assert issue["description"].startswith("cpu-py311-server: xgboost 3.4.1 holds 48.0 MB")
    assert issue["description"].endswith('Fix: write `replace = { xgboost = "xgboost-cpu" }`')


def test_without_a_repository_paths_stay_as_they_are() -> None:
    (issue,) = quality(report(finding()), Destination(root=HOME))
    assert issue["location"]["path"] == "images/requirements/base.in"


def test_what_has_no_line_stands_at_the_specification() -> None:
    (issue,) = quality(report(finding(chain=())))
    assert issue["location"] == {"path": "sub/buildmatrix.toml", "lines": {"begin": 1}}


def test_a_finding_of_two_targets_is_one_issue_whose_fingerprint_stays() -> None:
    (alone,) = quality(report(finding()))
    (issue,) = quality(report(finding(), finding(target="cpu-py312-server")))
    assert issue["description"].startswith("cpu-py311-server, cpu-py312-server: ")
    assert issue["fingerprint"] == alone["fingerprint"]


@pytest.mark.parametrize(
    ("severity", "name"), [("error", "critical"), ("warning", "minor"), ("note", "info")]
)
def test_severities(severity: str, name: str) -> None:
    assert [item["severity"] for item in quality(report(finding(severity=severity)))] == [name]


def test_accepted_findings_are_left_out() -> None:
    assert quality(report(finding(waived="we know"))) == []
    assert scanning(report(vulnerable(waived="we know")))["vulnerabilities"] == []


def test_what_is_not_known_is_no_empty_list() -> None:
    failed = replace(result(lock="undecided"), error="the index does not answer")
    document = replace(report(), targets=(failed,), unread=(Unread("a.so", "damaged"),))
    issues = quality(document)
    assert [item["severity"] for item in issues] == ["blocker", "major"]
    scan = scanning(document)["scan"]
    assert scan["status"] == "failure"
    assert [item["value"] for item in scan["messages"]] == [
        "cpu-py311-server: the index does not answer",
        "a.so was not read: damaged",
    ]


def test_a_vulnerability_has_all_its_names_and_the_dependency() -> None:
    found = scanning(report(vulnerable()))
    assert found["scan"]["status"] == "success" and found["scan"]["messages"] == []
    assert found["scan"]["end_time"] == "2026-11-22T23:00:00"
    first, second = found["vulnerabilities"]
    assert [item["name"] for item in first["identifiers"]] == [
        "CVE-2024-22195",
        "GHSA-h5c8",
        "PYSEC-2024-60",
    ]
    assert first["identifiers"][0]["url"] == "https://nvd.nist.gov/vuln/detail/CVE-2024-22195"
    assert first["location"] == {
        "file": "sub/images/requirements/base.in",
        "dependency": {"package": {"name": "jinja2"}, "version": "3.1.2"},
    }
    assert first["solution"] == "require `jinja2>=3.1.6`"
    assert second["identifiers"] == [{"type": "other", "name": "OTHER-1", "value": "OTHER-1"}]


def test_a_vulnerability_of_two_targets_is_one_and_other_findings_are_none() -> None:
    both = scanning(report(vulnerable(), vulnerable(target="cpu-py312-server"), finding()))
    assert len(both["vulnerabilities"]) == 2
    assert both["vulnerabilities"] == scanning(report(vulnerable()))["vulnerabilities"]


def test_what_was_not_checked_is_a_message_once() -> None:
    unchecked = finding("BM802", "not-checked", severity="warning", message="PyPI does not answer")
    other = replace(unchecked, target="cpu-py312-server")
    scan = scanning(report(unchecked, other))["scan"]
    assert [item["value"] for item in scan["messages"]] == [
        "cpu-py311-server, cpu-py312-server: PyPI does not answer"
    ]
