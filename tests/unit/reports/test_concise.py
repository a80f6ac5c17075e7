"""One line per cause, where editors and problem matchers look for it."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.reports.formats import RUN, Destination, find_format

HOME = PurePath("/work/project")


def lines(document: object, **to: PurePath | None) -> list[str]:
    return find_format(RUN, "concise").render(document, Destination(**to)).splitlines()


def test_a_finding_is_a_line_with_its_place_its_fix_and_its_rule() -> None:
    (line,) = lines(report(finding()))
    assert line == (
        "images/requirements/base.in:3: error: xgboost 3.4.1 holds 48.0 MB of device code for"
        ' NVIDIA CUDA; fix: write `replace = { xgboost = "xgboost-cpu" }` [BM401]'
    )


@pytest.mark.parametrize(
    ("here", "path"),
    [
        (HOME, "sub/images/requirements/base.in"),
        (HOME / "sub", "images/requirements/base.in"),
        (HOME / "sub" / "images", "requirements/base.in"),
        (HOME / "other", "../sub/images/requirements/base.in"),
    ],
)
def test_paths_start_where_the_command_runs(here: PurePath, path: str) -> None:
    (line,) = lines(report(finding()), root=HOME / "sub", here=here)
    assert line.startswith(f"{path}:3: error: ")


def test_what_has_no_line_names_its_subject_and_severities_are_kept() -> None:
    (line,) = lines(report(finding(chain=(), severity="warning", fix=None)))
    assert line == (
        "buildmatrix.toml: warning: xgboost 3.4.1 holds 48.0 MB of device code for NVIDIA CUDA"
        " [BM401]"
    )


def test_accepted_findings_are_left_out() -> None:
    assert lines(report(finding(waived="we know"))) == []


def test_findings_with_one_cause_are_one_line() -> None:
    ids = ("cpu-py311-server", "cpu-py312-server")
    document = replace(
        report(*(finding(target=target) for target in ids)), targets=tuple(map(result, ids))
    )
    (line,) = lines(document)
    assert "for NVIDIA CUDA (2 targets); fix: write" in line


def test_failed_targets_and_unread_files_are_said() -> None:
    failed = replace(result(lock="undecided"), error="the index does not answer\nsecond line")
    document = replace(report(), targets=(failed,), unread=(Unread("a.so", "damaged"),))
    assert lines(document) == [
        "buildmatrix.toml: error: cpu-py311-server: the index does not answer [target]",
        "buildmatrix.toml: warning: not read: a.so: damaged [unread]",
    ]
