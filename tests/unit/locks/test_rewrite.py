"""One requirement written anew, everything else as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from buildmatrix.locks.edits import CannotRewrite, rename_in_line, rename_in_toml, unified


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("xgboost", "xgboost-cpu"),
        ("xgboost==3.4.1  # why", "xgboost-cpu==3.4.1  # why"),
        (
            "XGBoost[dask] >= 3, < 4 ; sys_platform != 'x'",
            "xgboost-cpu[dask] >= 3, < 4 ; sys_platform != 'x'",
        ),
        ("  xgboost~=3.4;sys_platform == 'linux'", "  xgboost-cpu~=3.4;sys_platform == 'linux'"),
        ("xgboost (>=3)", "xgboost-cpu (>=3)"),
    ],
)
def test_only_the_name_changes(before: str, after: str) -> None:
    assert rename_in_line(before, 1, "xgboost", "xgboost-cpu") == after


def test_another_range_takes_the_place_of_the_old_one() -> None:
    line = "xgboost ==3.4.1 ; python_version > '3'  # why"
    assert rename_in_line(line, 1, "xgboost", "xgboost-cpu", "==3.4.0") == (
        "xgboost-cpu==3.4.0 ; python_version > '3'  # why"
    )


def test_other_lines_and_line_ends_stay() -> None:
    text = "a\r\nxgboost\r\n\r\n# xgboost\r\nb"
    assert rename_in_line(text, 2, "xgboost", "x-cpu") == "a\r\nx-cpu\r\n\r\n# xgboost\r\nb"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("xgboost==3 --hash=sha256:00", "hashes"),
        ("xgboost==3 \\\n  --hash=sha256:00", "hashes"),
        ("xgboost \\\n  ==3", "next line"),
        ("xgboost @ https://example.com/x.whl", "has more"),
        ("numpy", "has more"),
        ("-e ./xgboost", "has more"),
        ("# xgboost", "no such line"),
    ],
)
def test_a_line_that_says_more_is_refused(line: str, why: str) -> None:
    with pytest.raises(CannotRewrite, match=why):
        rename_in_line(line, 1, "xgboost", "xgboost-cpu")


def test_a_string_of_a_project_file_is_found_on_its_line() -> None:
    text = "[project]\ndependencies = ['numpy', 'xgboost>=3']  # xgboost>=3\n"
    assert rename_in_toml(text, 2, "xgboost>=3", "xgboost", "x-cpu") == (
        "[project]\ndependencies = ['numpy', 'x-cpu>=3']  # xgboost>=3\n"
    )


def test_a_string_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(CannotRewrite, match="one string"):
        rename_in_toml('a = ["xgboost", "xgboost"]', 1, "xgboost", "xgboost", "x-cpu")


@pytest.mark.parametrize("before", ["a\nb\nc\n", "a\nb\nc", "b", "a\r\nb\r\n", "a\x0cb\nb\n"])
def test_a_patch_is_what_git_applies(tmp_path: Path, before: str) -> None:
    after = before.replace("b", "other")
    (tmp_path / "x.in").write_bytes(before.encode())
    patch = unified("x.in", before, after)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    assert (tmp_path / "x.in").read_bytes() == after.encode()
