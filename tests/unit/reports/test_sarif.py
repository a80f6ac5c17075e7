"""The report as SARIF: held by the schema of OASIS, and read by another project's reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sarif.loader import load_sarif_file
from sarif_files import apply_fixes
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory, Unread
from buildmatrix.judge.model import Fix, TargetResult, Trial
from buildmatrix.locks.edits import unified
from buildmatrix.reports import sarif
from buildmatrix.reports.formats import RUN, Destination, find_format
from buildmatrix.reports.replacements import Region, replacements, requirement_region
from buildmatrix.reports.run import FixesTried, Report

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "sarif-schema-2.1.0.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def run_of(one: Report, **to: Any) -> dict[str, Any]:
    text = find_format(RUN, "sarif").render(one, Destination(**to))
    log: dict[str, Any] = json.loads(text)
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    return run


def result_of(one: Report, **to: Any) -> dict[str, Any]:
    (only,) = run_of(one, **to)["results"]
    return only


def region_of(text: str | None, **changes: Any) -> dict[str, int]:
    found = result_of(report(finding(**changes)), text_of=lambda name: text)
    region: dict[str, int] = found["locations"][0]["physicalLocation"]["region"]
    return region


# Places


def test_the_region_is_that_of_the_requirement() -> None:
    text = "numpy\n# xgboost\n  XGBoost[gpu] >= 3 ; python_version > '3'  # boosting\n"
    assert region_of(text) == {"startLine": 3, "startColumn": 3, "endLine": 3, "endColumn": 43}


@pytest.mark.parametrize("text", [None, "", "xgboost\n", "a\nb\nnumpy  # no xg-boost\n"])
def test_a_file_that_is_not_there_or_changed_leaves_the_line(text: str | None) -> None:
    assert region_of(text) == {"startLine": 3}


@pytest.mark.parametrize(
    ("text", "line", "region"),
    [
        # With hashes it goes on behind a backslash; the comment is no part of it.
        ("xgboost==3 \\\n  --hash=sha256:aa  # via x\n", 1, (1, 1, 2, 19)),
        # TOML: what stands between the quotes.
        ('dependencies = ["torch", "xgboost>=3"]', 1, (1, 27, 1, 37)),
        # UTF-16, as editors count; a mark of byte order is no column, nor is a carriage return.
        ("\ufeff- '\U0001f600', 'xgboost'\r\n", 1, (1, 10, 1, 17)),
        ("xgboost-cpu\nxgboost", 1, (1, None, None, None)),
        ("xgboost", 9, (9, None, None, None)),
        ("xgboost \\", 1, (1, 1, 1, 10)),
    ],
)
def test_regions_of_requirements(
    text: str, line: int, region: tuple[int, int | None, int | None, int | None]
) -> None:
    assert requirement_region(text, line, "xgboost") == Region(*region)


def test_what_lies_in_an_image_is_a_logical_location_and_the_chain_is_related() -> None:
    found = result_of(report(finding()))
    (place,) = found["locations"]
    (logical,) = place["logicalLocations"]
    assert logical["name"] == "libxgboost.so"
    assert logical["fullyQualifiedName"].startswith("xgboost 3.4.1/usr/lib/")
    assert [item["message"]["text"] for item in found["relatedLocations"]] == [
        "xgboost 3.4.1",
        "usr/lib/python3.11/site-packages/xgboost/lib/libxgboost.so",
    ]
    assert all("physicalLocation" not in item for item in found["relatedLocations"])


# Fixes


def fixed(before: str, after: str, name: str = "base.in", **more: Any) -> Report:
    fix = Fix("replace", "ask for another", unified(name, before, after), tried=Trial(True))
    return replace(report(finding(fix=fix)), **more)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("numpy\nxgboost==3\n", "numpy\nxgboost-cpu==3\n"),
        ("xgboost", "xgboost-cpu"),
        ("xgboost\n", "xgboost-cpu"),
        ("xgboost", "xgboost-cpu\n"),
        ("a\nxgboost\r\nb\r\n", "a\nxgboost-cpu\r\nb\r\n"),
        ("a\nb", "a\n"),
        ("a\nb\n", "a\n"),
        ("a\n", ""),
        ("", "a\n"),
        ("a\n", "a\nb\n"),
        ("b\n", "a\nb\n"),
        ("\ufeffxgboost\n", "\ufeffxgboost-cpu\n"),
        ("\ufeffa\nb\n", "\ufeffc\nb\n"),
        ("-- a/x\n-- b\n", "++ b/x\n++ b\n"),
        ("".join(f"{n}\n" for n in range(50)), "".join(f"{n}\n" for n in range(50) if n % 9)),
        ("\x0b\tα\U0001f600 x\n", "\x0b\tβ\U0001f600 y\n"),
    ],
)
def test_replacements_make_the_same_bytes_as_the_patch(before: str, after: str, tmp_path) -> None:
    (tmp_path / "base.in").write_bytes(before.encode())
    apply_fixes(run_of(fixed(before, after)), tmp_path)
    assert (tmp_path / "base.in").read_bytes() == after.encode()


lines = st.lists(
    st.sampled_from(["a", "b", "- c", "+ d", "@@ -1 +1 @@", "\\ x", "é\U0001f600", ""])
)
ends = st.sampled_from(["\n", "\r\n", ""])


@given(lines, lines, ends, ends)
@example(["--- a/x", "+++ b/x"], ["+++ b/y"], "\n", "")
@settings(max_examples=60, deadline=None)
def test_any_change_of_lines(tmp_path_factory, before, after, end, last) -> None:
    tmp_path = tmp_path_factory.mktemp("fix")
    one, two = (end or "\n").join(before) + last, (end or "\n").join(after) + end
    (tmp_path / "base.in").write_bytes(one.encode())
    apply_fixes(run_of(fixed(one, two)), tmp_path)
    assert (tmp_path / "base.in").read_bytes() == two.encode()


def test_a_fix_that_was_written_already_is_not_offered_again() -> None:
    written = fixed("xgboost\n", "xgboost-cpu\n", fixes=FixesTried(written=True))
    assert "fixes" in result_of(fixed("xgboost\n", "xgboost-cpu\n"))
    assert "fixes" not in result_of(written)


def test_a_file_that_changed_since_has_no_fix() -> None:
    one = fixed("numpy\nxgboost\n", "numpy\nxgboost-cpu\n")
    assert "fixes" in result_of(one, text_of=lambda name: "numpy\nxgboost\n")
    assert "fixes" not in result_of(one, text_of=lambda name: "xgboost\nnumpy\n")
    assert "fixes" not in result_of(one, text_of=lambda name: "")


def test_advice_and_masked_secrets_are_no_replacement() -> None:
    assert "fixes" not in result_of(report(finding())), "its patch is the text `patch`"
    secret = fixed("a\n", "--index-url https://user:pw@host.example/simple\n")
    assert "fixes" not in result_of(secret)
    assert "pw" not in find_format(RUN, "sarif").render(secret, Destination())
    assert replacements("[backend.cpu]\nreplace = {}\n") == {}


# Rules, runs, limits


def test_rules_say_what_they_are_and_have_their_page() -> None:
    advisory = finding("BM801", "known-vulnerability", fingerprint="1" * 32)
    driver = run_of(report(finding(), advisory))["tool"]["driver"]
    rules = {rule["id"]: rule for rule in driver["rules"]}
    rule = rules["BM401"]
    assert rule["helpUri"].endswith("/docs/rules/BM401.md")
    assert rule["help"]["markdown"].startswith("# BM401: foreign-device-code")
    assert rule["fullDescription"]["text"] == "A file contains device code for another backend."
    assert rule["properties"]["tags"] == ["accelerator", "device-code"]
    assert "security-severity" not in rule["properties"]
    # GitHub asks it of rules without a result, too.
    assert rules["BM402"]["help"]["markdown"].startswith("# BM402")
    properties = rules["BM801"]["properties"]
    assert "security" in properties["tags"]
    assert 0 < float(properties["security-severity"]) <= 10


def test_the_category_is_the_target_or_the_subject() -> None:
    assert run_of(report())["automationDetails"] == {"id": "buildmatrix/cpu-py311-server/"}
    two = report(targets=(result("a"), result("b")))
    assert run_of(two)["automationDetails"] == {"id": "buildmatrix/buildmatrix.toml/"}
    source = replace(report(), targets=(replace(result(), id="docker:acme/x:1"),))
    assert run_of(source)["automationDetails"]["id"].count("/") == 2


def test_what_was_not_read_is_a_notification_and_no_success() -> None:
    tree = Inventory(unread=(Unread("opt/a.so", "it ends early"),))
    broken = TargetResult("cpu", "cpu", {"lock": "undecided"}, error="uv found no index")
    (invocation,) = run_of(report(inventories=[tree], targets=(broken,)), exit_code=3)[
        "invocations"
    ]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 3
    said = [item["message"]["text"] for item in invocation["toolExecutionNotifications"]]
    assert said == ["opt/a.so could not be read: it ends early", "cpu: uv found no index"]


def test_findings_are_a_success_of_the_tool() -> None:
    (invocation,) = run_of(report(finding()), exit_code=1)["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1)
    assert invocation["toolExecutionNotifications"] == []
    assert "exitCode" not in run_of(report())["invocations"][0]


def test_more_results_than_github_takes_are_cut_to_the_most_severe_and_that_is_said(
    monkeypatch,
) -> None:
    assert (sarif.MOST_RESULTS, sarif.SHOWN_RESULTS) == (25_000, 5_000)
    monkeypatch.setattr(sarif, "MOST_RESULTS", 20)
    monkeypatch.setattr(sarif, "SHOWN_RESULTS", 10)
    notes = tuple(finding(severity="note", fingerprint=f"{n:032x}") for n in range(20))
    waived = finding(waived="accepted", fingerprint="e" * 32)
    last = finding(fingerprint="f" * 32)
    log = json.loads(sarif.render(replace(report(), findings=(*notes, waived, last))))["runs"][0]
    assert [one["level"] for one in log["results"]] == ["note"] * 19 + ["error"]
    assert "suppressions" not in log["results"][-1]
    said = [item["message"]["text"] for item in log["invocations"][0]["toolExecutionNotifications"]]
    assert said == [
        "GitHub shows the 10 most severe of 22 results",
        "2 results left out, the least severe: GitHub takes 20 of one run; --format json has all "
        "of them",
    ]
    few = json.loads(sarif.render(replace(report(), findings=notes[:10])))["runs"][0]
    assert few["invocations"][0]["toolExecutionNotifications"] == []


def test_foreign_text_is_no_link_and_no_placeholder() -> None:
    found = result_of(
        report(finding(message="[click](https://x.invalid) {0} { a = 1 }\n::error::"))
    )
    text = found["message"]["text"]
    assert "[click\\](https" in text
    assert "{{0}} { a = 1 }" in text
    assert "\n" not in text


def test_another_reader_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "report.sarif"
    other = finding("BM501", "foreign-dlopen", severity="warning", fingerprint="1" * 32)
    path.write_text(sarif.render(report(finding(), other)))
    read = load_sarif_file(str(path))
    assert read.get_distinct_tool_names() == ["buildmatrix"]
    assert read.get_report().get_issue_count_for_severity("error") == 1
    assert read.get_report().get_issue_count_for_severity("warning") == 1
    (first, *_) = read.get_records()
    assert first["Location"] == "images/requirements/base.in"
    assert str(first["Line"]) == "3"


@given(st.text(alphabet=st.characters(codec=None), max_size=60))
@example("\x1b]0;x\x07::error::\u202e\ufffe\x00" + "a" * 10_000)
@settings(max_examples=40, deadline=None)
def test_any_text_fits_the_schema(text: str) -> None:
    one = replace(
        finding(message=text, chain=(f"{text}:3", text), waived=text),
        distribution=text,
        version=text,
        path=text,
        fix=Fix("replace", text, f"--- a/{text}\n+++ b/{text}\n@@ -1 +1 @@\n-{text}\n+{text}\n"),
    )
    tree = Inventory(unread=(Unread(text, text),))
    target = replace(result(), id=text, error=text, left_out=text)
    whole = report(replace(one, target=text), targets=(target,), inventories=[tree])
    run_of(whole, root=Path("/repo"), top=Path("/repo"), text_of=lambda name: text)
