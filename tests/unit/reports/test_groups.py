"""Findings that are read as one: in the table, in Markdown, and of several targets."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from markupsafe import escape

from buildmatrix.base.data import replace
from buildmatrix.catalogue.model import Evidence
from buildmatrix.cli.output import write_document
from buildmatrix.judge.model import AuditTotals, Finding, Fix, SpecChange, TargetResult, Trial
from buildmatrix.judge.registry import drop_repeats
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports import run_html, run_markdown, run_table
from buildmatrix.reports.formats import RUN
from buildmatrix.reports.groups import group_findings
from buildmatrix.reports.markdown import rich
from buildmatrix.reports.page import rich as rich_html
from buildmatrix.reports.run import Report, assemble
from buildmatrix.reports.saved import read
from buildmatrix.reports.summary import cures, headline

#: What torch 2.9 brings: name, bytes to download, links from it.
LIBRARIES = (
    ("cuda-bindings", 8_400_000, 1),
    ("nvidia-cublas", 404_900_000, 2),
    ("nvidia-cudnn-cu13", 519_200_000, 1),
    ("nvidia-nvtx", 153_500, 2),
)
#: Backends with a build of torch, and without one.
ROUTES = {"cpu": "cpu", "oneapi": "xpu"}
WITHOUT = ("openvino", "tpu", "npu", "vulkan", "neuron", "hpu", "qaic")


def torch_fix(backend: str, name: str) -> Fix:
    if backend in ROUTES:
        route = ROUTES[backend]
        return Fix(
            "index",
            f'write `torch = "{route}"` under [backend.{backend}], and lock again',
            f'[backend.{backend}]\ntorch = "{route}"\n',
            (SpecChange("torch", "torch", route),),
        )
    return Fix(
        "waive",
        f"no build of {name} for {backend} is known: take torch, which brings it, out of the "
        "requirements, or accept it with a [[waive]]",
    )


def of_torch(backend: str, target: str | None = None) -> list[Finding]:
    return [
        Finding(
            rule="BM101",
            name="foreign-dependency",
            severity="error",
            target=target or f"{backend}-py312",
            backend=backend,
            vendor="nvidia",
            message=f"{name} 13.0 ({size} B) belongs to NVIDIA CUDA, not usable on {backend}",
            distribution=name,
            version="13.0",
            evidence=(
                Evidence(
                    kind="declared",
                    vendor="nvidia",
                    backend="cuda",
                    path="",
                    detail=name,
                    role="package",
                    confidence="high",
                    size=size,
                ),
            ),
            chain=("base.in:1", "torch 2.9.0", *["cuda-toolkit 13.0"] * (links - 1), name),
            fix=torch_fix(backend, name),
            fingerprint=f"{backend} {name}",
        )
        for name, size, links in LIBRARIES
    ]


def report(backends: Sequence[str], *more: Finding) -> Report:
    return assemble(
        "buildmatrix.toml",
        "2026-11-01",
        targets=[
            TargetResult(f"{one}-py312", one, {"lock": "failed"}, audit=AuditTotals(4, 7, 3, 5))
            for one in backends
        ],
        findings=[*(one for backend in backends for one in of_torch(backend)), *more],
    )


def shown(made: Report, width: int = 100) -> str:
    return run_table.render(made, width=width, color=False)


# What one group is


def test_a_group_is_headed_by_what_weighs_most() -> None:
    (group,) = group_findings(of_torch("cpu"))
    assert group.first.distribution == "nvidia-cudnn-cu13"
    assert group.others == ("nvidia-cublas 13.0", "cuda-bindings 13.0", "nvidia-nvtx 13.0")
    text = shown(report(["cpu"]))
    assert "error BM101 foreign-dependency  nvidia-cudnn-cu13 13.0" in text
    assert "with it (932.7 MB together): nvidia-cublas 13.0, cuda-bindings 13.0" in text


def test_one_cause_of_nine_targets_is_one_group_that_names_them() -> None:
    backends = [*ROUTES, *WITHOUT]
    made = report(backends)
    (group,) = group_findings(made.findings, [one.id for one in made.targets])
    assert group.targets == tuple(f"{one}-py312" for one in backends)
    assert len(group.findings) == 36
    text = shown(made)
    assert "all 9 targets" in text
    assert text.count("BM101") == 1
    assert len(text.splitlines()) < 40
    assert "36 errors, 0 warnings, 0 notes (36 findings in 1 group)" in text


@pytest.mark.parametrize("render", [shown, run_markdown.render])
def test_each_target_s_cure_is_told(render) -> None:
    text = re.sub(r"\s+", " ", render(report([*ROUTES, *WITHOUT])).replace("\\", ""))
    for backend, route in ROUTES.items():
        assert f'write `torch = "{route}"` under [backend.{backend}], and lock again' in text
    assert (
        "no build of any of these for openvino, tpu, npu, vulkan, neuron, hpu and qaic is" in text
    )
    assert "not usable on cpu, oneapi, openvino, tpu, npu, vulkan, neuron, hpu and qaic" in text
    # Each text once.
    assert text.count("any of these") == text.count("belongs to") == 1


def test_a_fix_keeps_the_name_of_what_it_swaps() -> None:
    swap = Fix("replace", 'write `replace = { nvidia-cudnn-cu13 = "x" }` under [backend.cpu]')
    (group,) = group_findings([replace(one, fix=swap) for one in of_torch("cpu")])
    assert [said.text for said in group.cures(audited=True)] == [f"fix: {swap.text}"]


def test_where_more_than_the_backend_s_name_differs_each_text_is_told_with_its_targets() -> None:
    smaller = [
        replace(one, message=one.message.replace("519200000 B", "7 B"), target="cpu-py311")
        for one in of_torch("cpu")
    ]
    made = report(["cpu", "oneapi"], *smaller)
    (group,) = group_findings(made.findings, [one.id for one in made.targets])
    assert [said.targets for said in group.messages] == [
        ("cpu-py312", "oneapi-py312"),
        ("cpu-py311",),
    ]
    text = shown(made)
    assert "cpu-py312, oneapi-py312: nvidia-cudnn-cu13 13.0 (519200000 B)" in text
    assert "cpu-py311: nvidia-cudnn-cu13 13.0 (7 B)" in text


def test_targets_with_other_distributions_are_another_group() -> None:
    made = [*of_torch("cpu"), *of_torch("oneapi")[:2]]
    assert [group.targets for group in group_findings(made)] == [("cpu-py312",), ("oneapi-py312",)]


def test_two_paths_of_one_target_stay_two_findings() -> None:
    one = replace(of_torch("cpu")[0], rule="BM604", distribution=None, path="a", fingerprint="1")
    assert len(group_findings([one, replace(one, path="b", fingerprint="2")])) == 2


def test_a_value_and_a_path_that_are_called_like_the_backend_stay_as_they_are() -> None:
    message = 'lib/cpu/x.so links "cpu" of cpu-tools, for cpu and on cpu'
    made = [
        replace(of_torch(backend)[0], message=message.replace("for cpu and on cpu", text))
        for backend, text in (("cpu", "for cpu and on cpu"), ("tpu", "for tpu and on tpu"))
    ]
    (said,) = group_findings([replace(one, rule="BM201") for one in made])[0].messages
    assert said.text == (
        'lib/cpu/x.so links "cpu" of cpu-tools, for cpu and tpu and on cpu and tpu'
    )


def test_no_finding_is_lost_in_groups() -> None:
    made = report([*ROUTES, *WITHOUT]).findings
    assert sorted(map(repr, made)) == sorted(
        repr(one) for group in group_findings(made) for one in group.findings
    )


# What to do first


def test_the_headline_counts_lines_and_findings() -> None:
    made = report(["cpu", "oneapi", "tpu"])
    known = cures(made.findings, [one.id for one in made.targets])
    assert headline(known, 12) == "2 untried lines may cure 8 of 12 findings"
    tried = [
        replace(one, fix=replace(one.fix, tried=Trial(True))) if one.backend != "tpu" else one
        for one in made.findings
        if one.fix is not None
    ]
    assert headline(cures(tried, ()), 12) == "2 lines cure 8 of 12 findings"
    failed = [
        replace(one, fix=replace(one.fix, tried=Trial(False, "no")))
        for one in made.findings
        if one.fix is not None
    ]
    assert cures(failed, ()) == ()


def test_a_cure_without_a_line_is_a_step() -> None:
    made = [replace(one, fix=Fix("base", "take another base image")) for one in of_torch("cpu")]
    assert headline(cures(made, ()), 4) == "1 untried step may cure 4 of 4 findings"


def test_markdown_starts_with_what_to_do() -> None:
    lines = run_markdown.render(report(["cpu", "oneapi", "tpu"])).splitlines()
    assert lines[2] == (
        "**3 targets: 3 failed; 12 errors, 0 warnings, 0 notes (12 findings in 1 group)**"
    )
    assert lines[4].startswith(
        "**2 untried lines may cure 8 of 12 findings**; `audit --fix --dry-run`"
    )
    assert lines[6] == (
        '1. fix (not tried): write `torch = "cpu"` under \\[backend.cpu\\], and lock again '
        "(4 findings: cpu-py312)"
    )
    assert lines.index("| target | audit | download | wasted | installed | wasted |") > 6


def test_markdown_keeps_sixty_lines_open_and_folds_the_rest() -> None:
    more = [
        replace(
            of_torch("cpu")[0],
            rule="BM201",
            distribution=f"lib{number}",
            message=f"lib{number} ships it",
            fingerprint=str(number),
            fix=torch_fix("tpu", "lib"),
        )
        for number in range(80)
    ]
    text = run_markdown.render(report(["cpu", "oneapi"], *more))
    before, fold, _ = text.partition("<details>")
    assert fold and len(before.splitlines()) <= 60
    assert text.count("<details>") == text.count("</details>") == 1
    assert all(text.count(f"lib{number} ships it") == 1 for number in range(80))
    few = run_markdown.render(report(["cpu", "oneapi"]))
    assert "<details>" not in few


def test_a_long_table_of_targets_is_folded_and_what_failed_stays_open() -> None:
    passed = [TargetResult(f"cpu-{number}", "cpu", {"lock": "passed"}) for number in range(70)]
    failed = TargetResult("cpu-failed", "cpu", {"lock": "failed"})
    text = run_markdown.render(assemble("x", "2026-11-01", targets=[*passed, failed]))
    before, _, behind = text.partition("<details>")
    assert "| cpu-failed |" in before and len(before.splitlines()) <= 60
    assert "| cpu-69 |" in behind


def test_a_long_error_keeps_its_end_open_and_is_folded_as_a_whole() -> None:
    error = "\n".join(["step 3 failed", *(f"  | line {number}." for number in range(100))])
    failed = TargetResult("cpu", "cpu", {"build": "failed"}, error=error)
    text = run_markdown.render(assemble("x", "2026-11-01", targets=[failed]))
    before, _, behind = text.partition("<details>")
    assert "step 3 failed (the last 12 of 100 lines; all of them stand below)" in before
    assert "line 99." in before and "line 87." not in before
    assert all(f"line {number}." in behind for number in range(100))


def test_backticks_are_code_and_hold_no_markup() -> None:
    assert rich('write `torch = "cpu"` under [x]') == 'write `torch = "cpu"` under \\[x\\]'
    for hostile in ("`<img src=x>`", "`@all`", "`a|b`", "`a\\`", "`", "`a``", "a`b<c`d"):
        text = rich(hostile)
        outside = re.sub(r"(?<!\\)`[^`<&@|\\]+`", "", text.replace("@<!-- -->", "@"))
        assert not re.search(r"(?<!\\)[<`|]", outside)
        assert "@all" not in text  # a comment breaks it up
    assert rich("`x` <b>") == "`x` \\<b\\>"
    # What is no code by its signs does not make code of what follows it.
    assert rich("write `a@sha256:...`; it is under `bases`") == (
        "write \\`a@sha256:...\\`; it is under `bases`"
    )


# The same counts everywhere


def test_all_formats_count_the_same_findings(tmp_path: Path) -> None:
    line = replace(of_torch("cpu")[0], rule="BM103", distribution="nixl-cu12", fingerprint="BM103")
    made = report(["cpu", "tpu"], line, replace(line, rule="BM109", fingerprint="BM109"))
    places = {name: tmp_path / name for name in ("table", "markdown", "sarif", "json", "junit")}
    write_document(RUN, made, list(places.items()), None)
    counted = "9 errors, 0 warnings, 0 notes (9 findings in 2 groups)"
    assert counted in places["table"].read_text()
    assert counted in places["markdown"].read_text()
    (run,) = json.loads(places["sarif"].read_text())["runs"]
    assert len(run["results"]) == 9
    assert places["junit"].read_text().count("<failure") == 9 + 2
    # What repeats another finding stays in the data: it counts once that is accepted.
    assert len(json.loads(places["json"].read_text())["findings"]) == 10
    once = replace(made, findings=drop_repeats(made.findings))
    page = run_html.render(once)
    assert page.count('<article class="error" ') == 2 and "errors (9)" in page


def test_the_page_groups_as_the_table_does_and_still_has_every_finding() -> None:
    made = report(["cpu", "tpu", "npu"])
    page = run_html.render(made)
    known = group_findings(made.findings, [one.id for one in made.targets])
    assert page.count("<article") == len(known) < len(made.findings)
    for group in known:
        for said in (*group.messages, *group.cures(audited=True)):
            assert rich_html(said.text) in page
    for one in made.findings:
        assert f"<td>{one.target}</td><td>{one.label}</td><td>{escape(one.message)}</td>" in page


def test_a_saved_report_is_grouped_alike(tmp_path: Path) -> None:
    made = report([*ROUTES, *WITHOUT])
    path = tmp_path / "report.json"
    path.write_text(as_json.render(made))
    again = read(path)
    assert len(group_findings(again.findings)) == len(group_findings(made.findings)) == 1
    # It says of each fix whether it was tried, as the audit did.
    text = run_table.render(made, width=100, color=False)
    assert "fix (not tried): " in text
    assert "`buildmatrix audit --fix --dry-run` tries the fixes" in text
    assert run_table.render(again, width=100, color=False) == text
    assert headline(cures(again.findings, ()), 36) == "2 untried lines may cure 8 of 36 findings"


def test_two_budgets_of_one_target_are_read_apart() -> None:
    findings = [
        Finding(
            rule="BM603",
            name="size-budget",
            severity="error",
            target=f"{backend}-py312",
            backend=backend,
            vendor=None,
            message=f"it is over {key}",
            fingerprint=f"{number:032x}",
        )
        for backend in ("cpu", "cuda")
        for number, key in enumerate(("max-size", "max-layers"))
    ]
    held = group_findings(findings, ("cpu-py312", "cuda-py312"))
    assert [group.targets for group in held] == [("cpu-py312", "cuda-py312")] * 2
    assert [group.messages[0].text for group in held] == [
        "it is over max-size",
        "it is over max-layers",
    ]
