"""The report as data, as JSON and as a table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.model import GATES, Finding, Fix, GateState, TargetResult, Verdict
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports import preflight_formats, run_html, run_markdown, run_table, sarif
from buildmatrix.reports import preflight_formats as preflight_html
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.preflight import Preflight, PreflightTarget, RungOutcome
from buildmatrix.reports.run import Report, ReportTool, assemble, exit_code

PATH = "usr/lib/python3.11/site-packages/xgboost/lib/libxgboost.so"

TWIN = Fix("replace", 'write `replace = { xgboost = "xgboost-cpu" }`', "patch")


def evidence(size: int = 48_000_000) -> Evidence:
    return Evidence(
        kind="device-code",
        vendor="nvidia",
        backend="cuda",
        path=PATH,
        detail=".nv_fatbin: sm_75",
        role="kernel",
        confidence="high",
        offset=4096,
        size=size,
        distribution="xgboost==3.4.1",
    )


def finding(
    rule: str = "BM401",
    name: str = "foreign-device-code",
    *,
    severity="error",
    target: str = "cpu-py311-server",
    distribution: str | None = "xgboost",
    path: str | None = PATH,
    waived: str | None = None,
    fix: Fix | None = TWIN,
    fingerprint: str = "0" * 32,
    message: str = "xgboost 3.4.1 holds 48.0 MB of device code for NVIDIA CUDA",
    chain: tuple[str, ...] = ("images/requirements/base.in:3", "xgboost 3.4.1", PATH),
) -> Finding:
    return Finding(
        rule=rule,
        name=name,
        severity=severity,
        target=target,
        backend="cpu",
        vendor="nvidia",
        message=message,
        distribution=distribution,
        version="3.4.1" if distribution else None,
        path=path,
        evidence=(evidence(),),
        chain=chain,
        fix=fix,
        waived=waived,
        fingerprint=fingerprint,
    )


def result(identifier: str = "cpu-py311-server", **gates: str) -> TargetResult:
    return TargetResult(
        identifier,
        "cpu",
        {"lock": "passed", "build": "passed", "scan": "passed", "smoke": "passed", **gates},
        image="registry.example.com/demo",
        digest="sha256:00",
        size=412_000_000,
        seconds=75.2,
    )


def report(*findings: Finding, targets: tuple[TargetResult, ...] = (), **more) -> Report:
    return assemble(
        "buildmatrix.toml",
        "2026-11-20",
        targets=targets or (result(),),
        findings=findings,
        verdicts=[
            Verdict(
                "xgboost",
                "3.4.1",
                "cpu",
                "bloat",
                "48.0 MB of it are for NVIDIA CUDA",
                48_000_000,
                ("nvidia",),
                {"nvidia": ("sm_75",)},
            )
        ],
        **more,
    )


# Data


def test_what_lock_and_image_both_found_is_kept_once_with_more_evidence() -> None:
    thin = finding(message="from the lock")
    thick = Finding(
        **{
            **{name: getattr(thin, name) for name in thin.__slots__},
            "message": "from the image",
            "evidence": (evidence(), evidence()),
        }
    )
    for order in ((thin, thick), (thick, thin)):
        (one,) = report(*order).findings
        assert one.message == "from the image"


def test_the_same_finding_of_two_targets_is_kept_twice() -> None:
    assert len(report(finding(), finding(target="cpu-py312-server")).findings) == 2


def test_numbers_of_several_trees_are_added_up() -> None:
    trees = [Inventory(stats=Stats(1, 2, 3, 4, 0.5, 1)), Inventory(stats=Stats(10, 20, 30, 40))]
    assert report(inventories=trees).stats == Stats(11, 22, 33, 44, 0.5, 1)


@pytest.mark.parametrize(
    ("severity", "fail_on", "code"),
    [
        ("error", "error", 1),
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("note", "warning", 0),
        ("note", "note", 1),
        ("error", "never", 0),
    ],
)
def test_the_exit_code_follows_fail_on(severity, fail_on, code: int) -> None:
    assert exit_code(report(finding(severity=severity)), fail_on) == code


def test_a_waived_finding_does_not_fail() -> None:
    assert exit_code(report(finding(waived="accepted"))) == 0


def test_a_failed_build_wins_over_findings_and_findings_over_what_is_undecided() -> None:
    failed = result("a", build="failed", scan="not-run", smoke="not-run")
    unknown = result("b", lock="undecided")
    assert exit_code(report(finding(), targets=(failed, unknown))) == 4
    assert exit_code(report(finding(), targets=(unknown,))) == 1
    assert exit_code(report(targets=(unknown,))) == 3


def test_strict_turns_undecided_into_failed() -> None:
    assert exit_code(report(targets=(result(lock="undecided"),)), strict=True) == 1


def test_a_failed_smoke_gate_fails_the_run() -> None:
    assert exit_code(report(targets=(result(smoke="failed"),))) == 1


def test_an_unread_file_is_never_clean_unless_it_was_accepted() -> None:
    tree = Inventory(unread=(Unread("opt/a.so", "it ends early"),))
    unread = finding("BM902", "unread-file", severity="warning", path="opt/a.so")
    waived = finding("BM902", "unread-file", path="opt/a.so", waived="test data")
    assert exit_code(report(inventories=[tree])) == 3
    assert exit_code(report(unread, inventories=[tree])) == 3
    assert exit_code(report(waived, inventories=[tree])) == 0


def test_a_clean_run_is_zero() -> None:
    assert exit_code(report()) == 0


# JSON


def test_json_fits_its_own_schema_with_everything_and_with_nothing() -> None:
    jsonschema.Draft202012Validator.check_schema(document_schema("report"))
    full = report(
        finding(),
        finding("BM902", "unread-file", distribution=None, path=None, fix=None),
        inventories=[Inventory(unread=(Unread("a", "b"),))],
    )
    for one in (full, Report("lock:a.toml")):
        jsonschema.validate(json.loads(as_json.render(one)), document_schema("report"))


def test_the_schema_refuses_what_the_contract_does_not_have() -> None:
    document = json.loads(as_json.render(report(finding())))
    document["findings"][0]["severity"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, document_schema("report"))


def test_json_holds_what_the_contract_promises_in_its_order() -> None:
    document = json.loads(as_json.render(report(finding())))
    assert list(document) == [
        *("schema", "tool", "subject", "targets"),
        *("distributions", "findings", "unread", "stats"),
    ]
    (one,) = document["findings"]
    assert (one["rule"], one["distribution"], one["waived"]) == ("BM401", "xgboost", None)
    assert one["evidence"] == [
        {
            "kind": "device-code",
            "path": PATH,
            "detail": ".nv_fatbin: sm_75",
            "offset": 4096,
            "confidence": "high",
            "vendor": "nvidia",
            "backend": "cuda",
            "role": "kernel",
            "where": "image",
            "weight": "strong",
            "toolkit": None,
            "size": 48_000_000,
            "distribution": "xgboost==3.4.1",
            "architectures": [],
        }
    ]
    assert document["targets"][0]["gates"]["scan"] == "passed"


def test_the_order_of_findings_does_not_depend_on_the_run() -> None:
    one, two = finding("BM201", "bundled-foreign-library"), finding()
    assert as_json.render(report(one, two)) == as_json.render(report(two, one))
    assert as_json.render(report(one)).endswith("}\n")


# Table


def test_the_table_names_gate_library_distribution_line_and_fix_in_80_columns() -> None:
    text = run_table.render(
        report(finding(), targets=(result(scan="failed", smoke="not-run"),)), width=80, color=False
    )
    assert "  failed  " in text and "412.0 MB" in text and "1:15 m" in text
    assert "error BM401 foreign-device-code  xgboost 3.4.1" in text
    assert "images/requirements/base.in:3 -> xgboost 3.4.1" in text
    assert 'fix: write `replace = { xgboost = "xgboost-cpu" }`' in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text


def test_color_only_adds_escape_sequences() -> None:
    import re

    colored = run_table.render(report(finding()), width=100, color=True)
    assert "\x1b[31" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == run_table.render(
        report(finding()), width=100, color=False
    )


def test_a_gate_that_did_not_run_is_not_shown_as_passed() -> None:
    text = run_table.render(
        report(
            targets=(
                result("b", lock="undecided", build="not-run", scan="not-run", smoke="not-run"),
            )
        ),
        width=80,
        color=False,
    )
    row = next(line for line in text.splitlines() if line.startswith("b "))
    assert row.split()[1:4] == ["undecided", "not", "run"]
    assert "1 undecided" in text


def test_many_distributions_with_one_cause_and_one_cure_are_one_block() -> None:
    cure = Fix("index", 'write `torch = "cpu"`')
    names = [f"nvidia-lib{number}" for number in range(15)]
    text = run_table.render(
        report(
            *(
                finding(
                    "BM101",
                    "foreign-dependency",
                    distribution=name,
                    fix=cure,
                    fingerprint=f"{number:032}",
                    chain=("base.in:1", "torch 2", f"{name} 3"),
                )
                for number, name in enumerate(names)
            )
        ),
        width=80,
        color=False,
    )
    assert text.count("error BM101") == 1
    assert all(name in text for name in names)
    assert text.count("fix:") == 1
    assert "15 errors" in text


def test_a_waived_finding_is_shown_with_its_reason_and_not_as_an_error() -> None:
    text = run_table.render(report(finding(waived="accepted (team)")), width=80, color=False)
    assert "waived BM401" in text and "accepted (team)" in text
    assert "0 errors" in text and "1 waived" in text


def test_the_reason_of_a_failed_target_and_its_log_are_shown() -> None:
    broken = TargetResult(
        "cpu-py311-server",
        "cpu",
        {"build": "failed"},
        log=".buildmatrix/state/logs/cpu.log",
        error="step 3/7 failed",
    )
    text = run_table.render(report(targets=(broken,)), width=80, color=False)
    assert "step 3/7 failed" in text
    assert "log: .buildmatrix/state/logs/cpu.log" in text


def test_control_characters_in_paths_cannot_repaint_the_terminal() -> None:
    evil = "opt/\x1b[2J\x1b]0;owned\x07\n.so"
    text = run_table.render(
        report(
            finding(path=evil, message=f"{evil} is foreign", chain=(evil,)),
            inventories=[Inventory(unread=(Unread(evil, "it ends early"),))],
        ),
        width=80,
        color=False,
    )
    assert "\x1b" not in text and "\x07" not in text
    assert "\\x1b[2J" in text


def test_findings_of_the_run_itself_are_shown_too() -> None:
    stale = finding("BM901", "expired-or-unused-waiver", target="", distribution=None)
    text = run_table.render(report(stale), width=80, color=False)
    assert "this run" in text


# SARIF and Markdown


def test_sarif_points_at_the_requirement_line() -> None:
    log = json.loads(
        sarif.render(
            report(finding(), finding("BM501", "foreign-dlopen", chain=(), fingerprint="1" * 32))
        )
    )
    (run,) = log["runs"]
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "images/requirements/base.in"
    assert place["region"]["startLine"] == 3
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "BM401"
    assert "region" not in second["locations"][0]["physicalLocation"]


@pytest.mark.parametrize(
    ("root", "file", "uri", "base"),
    [
        ("/repo/services/a", "base.in", "services/a/base.in", True),
        ("/repo/services/a", "../b/re quirements.in", "services/b/re%20quirements.in", True),
        ("/repo/services/a", "/repo/base.in", "base.in", True),
        ("/repo/services/a", "/elsewhere/base.in", "file:///elsewhere/base.in", False),
    ],
)
def test_sarif_names_files_as_seen_from_the_root_of_the_repository(
    root: str, file: str, uri: str, base: bool
) -> None:
    one = finding(chain=(f"{file}:3",))
    log = json.loads(sarif.render(report(one), root=Path(root), top=Path("/repo")))
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == ({"uri": uri, "uriBaseId": "%SRCROOT%"} if base else {"uri": uri})


def test_sarif_suppresses_what_was_waived() -> None:
    log = json.loads(sarif.render(report(finding(waived="accepted"))))
    assert log["runs"][0]["results"][0]["suppressions"][0]["justification"] == "accepted"


def test_markdown_takes_names_literally() -> None:
    text = run_markdown.render(report(finding(message="<img src=x> | `x` [y](z)", chain=())))
    # Between backticks text is code, which is literal too.
    assert "\\<img src=x\\> \\| `x` \\[y\\](z)" in text
    assert "| cpu-py311-server | passed | passed | passed | passed | 412.0 MB |" in text


def test_lines_that_a_failed_command_printed_keep_their_lines_and_margin() -> None:
    long = "word " * 30
    error = f"smoke command 'a' failed with exit code 1\n  | Traceback:\n  | {long.strip()}"
    failed = TargetResult("cpu", "cpu", {"smoke": "failed"}, error=error)
    text = run_table.render(report(targets=(failed,)), width=80, color=False)
    assert "  smoke command 'a' failed with exit code 1\n    | Traceback:\n    | word" in text
    assert max(len(line) for line in text.splitlines() if "word" in line) <= 80
    assert all(line.startswith("    | ") for line in text.splitlines() if "word" in line)
    assert "\\n" not in text
    document = run_markdown.render(report(targets=(failed,)))
    assert "- cpu: smoke command 'a' failed with exit code 1\n  <br>\\| Traceback:\n" in document
    assert "\\n" not in document


def test_markdown_calls_nobody_and_links_to_nothing() -> None:
    path = "opt/node_modules/@types/node #12 https://x.invalid www.x.invalid mail@example.com"
    text = run_markdown.render(report(finding(message=path, chain=())))
    assert (
        "/@<!-- -->types/node \\#<!-- -->12 https:<!-- -->//x.invalid www<!-- -->.x.invalid "
        "mail@example.com" in text
    )


@pytest.mark.parametrize("state", get_args(GateState))
def test_a_state_has_one_word_in_every_format(state: GateState) -> None:
    # A page leaves out gates that ran nowhere.
    others = result("other")
    it = report(targets=(TargetResult("cpu", "cpu", dict.fromkeys(GATES, state)), others))
    word = state.replace("-", " ")
    (row,) = [
        line for line in run_table.render(it, width=80, color=False).splitlines() if "cpu  " in line
    ]
    assert re.split(r" {2,}", row)[1:5] == [word] * 4
    (row,) = [line for line in run_markdown.render(it).splitlines() if line.startswith("| cpu")]
    assert [cell.strip(" *") for cell in row.split("|")[2:6]] == [word] * 4
    assert run_html.render(it).count(f">{word}</span>") >= 4
    rungs = (RungOutcome("import", state),)
    climbed = Preflight(
        ReportTool(version="1", catalogue="2026-11-20"), (PreflightTarget("cpu", "cpu", rungs),)
    )
    assert f"  {word}" in preflight_formats.render_table(climbed, width=80, color=False)
    assert word in preflight_formats.render_markdown(climbed).splitlines()[6]
    assert f">{word}</span>" in preflight_html.render(climbed)
