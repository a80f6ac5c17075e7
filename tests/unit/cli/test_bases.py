"""`generate` and `lock` say what a base image leaves open."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from buildmatrix.api.building import report_bases
from buildmatrix.cli.options import ConsoleLog
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

SPEC = """
[project]
name = "p"
version = "1"
[defaults]
python = ["3.11", "3.12"]
requirements = ["r.in"]
[backend.cpu]
runtime = "any"
base = "{base}"
"""


def spec(tmp_path: Path, monkeypatch, base: str, more: str = "") -> Spec:
    monkeypatch.chdir(tmp_path)
    Path("r.in").write_text("packaging\n")
    path = Path("buildmatrix.toml")
    path.write_text(SPEC.format(base=base) + more)
    return load_spec(path)


def test_latest_is_a_warning_with_its_line_once_for_all_targets(tmp_path, monkeypatch, capsys):
    held = spec(tmp_path, monkeypatch, "debian:latest")
    assert report_bases(held, held.targets, ConsoleLog(False, False)) == 0
    assert capsys.readouterr().err == (
        "buildmatrix.toml:10: warning BM607: the base image debian:latest has the tag `latest`: "
        "it is another image whenever its owner releases one\n"
    )
    assert report_bases(held, held.targets, ConsoleLog(True, False)) == 0
    assert capsys.readouterr().err == ""


def test_a_policy_makes_it_an_error_that_is_never_quiet(tmp_path, monkeypatch, capsys):
    held = spec(tmp_path, monkeypatch, "debian:12", '[policy]\npinned-bases = "digest"\n')
    assert report_bases(held, held.targets, ConsoleLog(True, False)) == 1
    assert 'asks for more: `pinned-bases = "digest"`' in capsys.readouterr().err


@pytest.mark.parametrize("base", ["debian:12", "debian@sha256:" + "0" * 64])
def test_a_tag_of_a_release_says_nothing_here(tmp_path, monkeypatch, capsys, base):
    held = spec(tmp_path, monkeypatch, base)
    assert report_bases(held, held.targets, ConsoleLog(False, False)) == 0
    assert capsys.readouterr().err == ""


def test_a_waiver_holds_here_too(tmp_path, monkeypatch, capsys):
    waiver = f"""
[[waive]]
rule = "BM607"
reason = "r"
owner = "o"
expires = {date.max}
"""
    held = spec(tmp_path, monkeypatch, "debian", waiver)
    assert report_bases(held, held.targets, ConsoleLog(False, False)) == 0
    assert capsys.readouterr().err == ""
