"""Repositories whose locks and requirements are judged on the real index."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from conftest import Buildmatrix

from buildmatrix.catalogue.load import load
from buildmatrix.fleet.auditing import audit_file
from buildmatrix.fleet.model import WorkerSettings
from buildmatrix.fleet.repositories import find_repositories
from buildmatrix.fleet.repository_files import plan_audit
from buildmatrix.reports.fleet import FleetResult

pytestmark = pytest.mark.network

SPEC = """\
[project]
name = "a"
version = "1"
[defaults]
python = ["3.12"]
requirements = ["base.in"]
base = "debian:12"
[backend.cuda]
runtime = "12.8"
[backend.rocm]
runtime = "6.4"
"""
#: Metadata alone: what a name says is settled by the list of files.
FOREIGN = "nvidia-nvtx-cu12==12.8.90\n"


DOCS = Path(__file__).parents[2] / "docs"
_FIRST_RUN = re.compile(
    r"^<!-- checked by tests/integration/test_fleet_audit_real\.py -->\n```\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def block_of(document: Path) -> str:
    """What a document shows of a first run."""
    (text,) = _FIRST_RUN.findall(document.read_text(encoding="utf-8"))
    return text


def repository(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.test"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *arguments], cwd=folder, env=os.environ, check=True)


def test_repositories_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buildmatrix: Buildmatrix
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    both = {
        "requirements-cpu.txt": FOREIGN,
        "requirements-cuda.txt": "-r more/base.txt\n",
        "more/base.txt": FOREIGN,
    }
    repository(tmp_path / "clones" / "ranking", both)
    repository(tmp_path / "clones" / "search", {f"app/{name}": text for name, text in both.items()})
    repository(
        tmp_path / "clones" / "platform",
        {"buildmatrix.toml": SPEC, "base.in": "iniconfig==2.0.0\n"},
    )
    settings = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 1, 1))
    held = plan_audit(find_repositories(["clones"]).repositories, settings, load())
    assert held.missing == ()
    assert len(held.tasks) == 3
    done = [audit_file(settings, task) for task in held.tasks]
    results: dict[tuple[str, ...], FleetResult] = {
        (item.repository, *item.names): item for answer in done for item in answer.results
    }
    assert {key: (item.backend, item.state) for key, item in results.items()} == {
        ("ranking", "requirements-cpu.txt"): ("cpu", "failed"),
        ("ranking", "requirements-cuda.txt"): ("cuda", "passed"),
        ("search", "app/requirements-cpu.txt"): ("cpu", "failed"),
        ("search", "app/requirements-cuda.txt"): ("cuda", "passed"),
        ("platform", "buildmatrix.toml", "cuda12.8-py312-default"): ("cuda", "passed"),
        ("platform", "buildmatrix.toml", "rocm6.4-py312-default"): ("rocm", "passed"),
    }
    failed = results["ranking", "requirements-cpu.txt"]
    assert [(item.rule, item.distribution) for item in failed.findings] == [
        ("BM101", "nvidia-nvtx-cu12")
    ]
    assert 0 < failed.unusable == failed.installed
    assert failed.vendors[0].vendor == "nvidia"
    (base,) = results["platform", "buildmatrix.toml", "rocm6.4-py312-default"].findings
    assert (base.rule, base.path) == ("BM607", "buildmatrix.toml")
    # The wheel was read for the first of them, and is known for all others.
    assert sum(answer.bytes_read > 0 for answer in done) == 2
    # The same by workers of their own, as users run it.
    run = buildmatrix(
        tmp_path,
        *("fleet", "audit", "clones", "--workers", "1"),
        *("--format", "json", "--format", "table=first.txt"),
    )
    assert run.code == 1, run.err
    report = run.report()
    assert {
        (item["repository"], *item["names"]): (item["backend"], item["state"])
        for item in report["results"]
    } == {key: (item.backend, item.state) for key, item in results.items()}
    assert report["missing"] == []
    # What was judged here is not judged by them again.
    work = report["work"]
    assert (work["subjects"], work["stored"], work["bytes_read"]) == (5, 5, 0)
    # The page of a first run in the documentation is that of these repositories.
    table = (tmp_path / "first.txt").read_text()
    assert block_of(DOCS / "fleet.md") == table
