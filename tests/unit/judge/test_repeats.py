"""One problem is one finding: which findings repeat another one, and when they count."""

from __future__ import annotations

import pytest

from buildmatrix.base.data import replace
from buildmatrix.catalogue.model import Evidence
from buildmatrix.judge.model import Finding, Fix
from buildmatrix.judge.registry import drop_repeats
from buildmatrix.reports.run import Report, exit_code

REPLACE = Fix("replace", 'write `replace = { nixl-cu12 = "nixl-cu13" }` under [backend.cuda]')


def declared(name: str, toolkit: str | None) -> Evidence:
    return Evidence(
        kind="declared",
        vendor="nvidia",
        backend="cuda",
        path="",
        detail=name,
        role="package",
        confidence="high",
        toolkit=toolkit,
        size=1,
    )


def finding(rule: str, distribution: str = "nixl-cu12", **more: object) -> Finding:
    values: dict[str, object] = {
        "severity": "error",
        "target": "cuda13.0-py312",
        "backend": "cuda",
        "vendor": "nvidia",
        "message": "",
        "fix": REPLACE,
        "evidence": (declared("nixl-cu12 1.0.1", "12"),),
    }
    return Finding(rule=rule, name="", distribution=distribution, **{**values, **more})  # type: ignore[arg-type]


#: What lmcache's requirements give on cuda13.0.
LINE = finding("BM103")
BOTH = finding("BM109")
PATHS = finding("BM204", "nixl-cu12, nixl-cu13", vendor=None, evidence=())


def test_the_other_line_is_one_problem_and_one_finding() -> None:
    assert drop_repeats((LINE, BOTH, PATHS)) == (LINE,)


def test_what_is_accepted_hides_nothing() -> None:
    accepted = replace(LINE, waived="for the old cluster (team)")
    assert drop_repeats((accepted, BOTH, PATHS)) == (accepted, BOTH, PATHS)


def test_what_is_accepted_is_shown_beside_what_is_open() -> None:
    accepted = replace(PATHS, waived="one of them is never loaded (team)")
    assert drop_repeats((LINE, accepted)) == (LINE, accepted)


def test_all_of_a_baseline_is_one_problem_too() -> None:
    known = tuple(replace(one, waived="baseline") for one in (LINE, BOTH, PATHS))
    assert drop_repeats(known) == known[:1]


def test_another_target_and_another_distribution_say_nothing_about_it() -> None:
    elsewhere = replace(LINE, target="cuda12.9-py312")
    other = finding("BM103", "cupy-cuda12x")
    assert drop_repeats((elsewhere, other, BOTH, PATHS)) == (elsewhere, other, BOTH, PATHS)


def test_a_milder_finding_hides_no_worse_one() -> None:
    mild = replace(LINE, severity="warning")
    assert drop_repeats((mild, BOTH, PATHS)) == (mild, BOTH, PATHS)


def test_a_build_that_keeps_its_name_keeps_the_paths_it_shares() -> None:
    torch = finding("BM103", "torch", evidence=(declared("torch 2.9.0+cu128", None),))
    shared = finding("BM204", "torch, torch-fork", vendor=None)
    assert drop_repeats((torch, shared)) == (torch, shared)


def test_the_name_repeats_what_the_files_show_where_the_cure_is_the_same() -> None:
    cure = Fix("replace", 'write `replace = { xgboost = "xgboost-cpu" }`')
    files = finding("BM401", "xgboost", fix=cure)
    name = finding("BM104", "xgboost", fix=cure, severity="warning")
    assert drop_repeats((name, files)) == (files,)
    for other in (
        replace(name, fix=Fix("index", "another one")),
        replace(name, vendor="amd"),
        replace(name, severity="note"),
        replace(name, severity="error"),
    ):
        assert drop_repeats((other, files)) == (other, files)


def test_the_files_of_what_is_foreign_as_a_whole_are_no_problem_of_their_own() -> None:
    whole = finding("BM101", "nvidia-nccl-cu12")
    files = finding("BM201", "nvidia-nccl-cu12", fix=None)
    assert drop_repeats((whole, files)) == (whole,)
    accepted = replace(whole, waived="accepted (team)")
    assert drop_repeats((accepted, files)) == (accepted, files)
    other = replace(files, vendor="amd")
    assert drop_repeats((whole, other)) == (whole, other)


@pytest.mark.parametrize("fail_on", ["error", "warning", "note", "never"])
@pytest.mark.parametrize("waived", [None, "accepted"])
@pytest.mark.parametrize("severity", ["error", "warning", "note"])
def test_a_repeat_never_decides_an_exit_code(fail_on, waived, severity) -> None:
    all_of_them = tuple(
        replace(one, severity=severity) for one in (replace(LINE, waived=waived), BOTH, PATHS)
    )
    reports = [
        Report("", findings=findings) for findings in (all_of_them, drop_repeats(all_of_them))
    ]
    assert exit_code(reports[0], fail_on) == exit_code(reports[1], fail_on)
