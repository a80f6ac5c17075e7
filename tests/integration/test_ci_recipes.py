"""The recipes for GitLab, Jenkins, Azure and Tekton: their scripts, with a wheel built just now.

In a runner, GitLab's is run by `test_gitlab_runner.py`; here are the reports that no runner but
GitLab's own collects.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from conftest import ROOT
from recipes import Script, azure, blocks, gitlab, jenkins, tekton

from buildmatrix import __version__

pytestmark = pytest.mark.network

RED, GREEN = "nvidia-nvtx-cu12==12.8.90\n", "idna==3.10\n"
SYSTEMS = ("gitlab", "jenkins", "azure", "tekton")


def documented(system: str) -> Mapping[str, str]:
    """What the page of a system gives to its recipe."""
    if system == "jenkins":
        (block,) = blocks("jenkins.md", "groovy")
        (call,) = re.findall(r"^ *buildmatrix\((.+)\)$", block, re.MULTILINE)
        return dict(re.findall(r"(\w+): '([^']*)'", call))
    document = yaml.safe_load(blocks(f"{system}.md")[0])
    if system == "gitlab":
        return document["include"][0]["inputs"]
    if system == "azure":
        return document["steps"][1]["parameters"]
    return {item["name"]: item["value"] for item in document["spec"]["tasks"][1]["params"]}


@dataclass
class Job:
    """How the scripts of a recipe ended."""

    code: int
    log: str
    folder: Path

    def report(self, name: str) -> Path:
        (path,) = (path for path in self.folder.rglob(name) if path.is_file())
        return path


@pytest.fixture
def run(tmp_path: Path, wheels: Path):
    def run(system: str, requirements: str, **changes: str) -> Job:
        values = {**documented(system), **changes}
        assert values["version"] == "0.1.0" == __version__
        scripts: Mapping[str, list[Script]] = {
            "gitlab": gitlab(values)[1],
            "jenkins": jenkins(values),
            "azure": azure(values),
            "tekton": tekton(values, tmp_path / "result"),
        }
        (tmp_path / "requirements.in").write_text(requirements)
        code, log = 0, ""
        for script in scripts[system]:
            if code and not script.always:
                continue
            environment = {
                **os.environ,
                **script.environment,
                "BUILDMATRIX_NO_VULNERABILITIES": "1",
                "UV_FIND_LINKS": str(wheels),
                # Nothing is read from the network twice.
                "UV_CACHE_DIR": str(wheels / "cache"),
                "HOME": os.environ["HOME"],
            }
            done = subprocess.run(
                [*script.shell, "-c", script.text],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            code, log = code or done.returncode, log + done.stdout
        return Job(code, log, tmp_path)

    return run


@pytest.mark.parametrize("system", SYSTEMS)
def test_red_keeps_exit_code_1_and_leaves_its_reports(system: str, run) -> None:
    job = run(system, RED)
    assert job.code == 1, job.log
    assert "BM101" in job.log
    if system == "gitlab":
        job_ = gitlab(documented(system))[0]["buildmatrix"]
        names = [*job_["artifacts"]["paths"], *job_["artifacts"]["reports"].values()]
        assert all((job.folder / name).stat().st_size for name in names)
        issues = json.loads((job.folder / "gl-code-quality-report.json").read_text())
        assert {item["check_name"] for item in issues} == {"BM101"}
        assert issues[0]["location"]["path"] == "requirements.in"
    else:
        found = json.loads(job.report("report.sarif").read_text())["runs"][0]["results"]
        assert {item["ruleId"] for item in found} == {"BM101"}
    if system in ("jenkins", "azure"):
        assert ET.parse(job.report("junit.xml")).findall(".//failure[@type='BM101']")
    if system == "azure":
        (path,) = re.findall(r"^##vso\[task\.uploadsummary\](.+)$", job.log, re.MULTILINE)
        assert Path(path).read_text().startswith("## buildmatrix: requirements.in")
    if system == "tekton":
        assert (job.folder / "result").read_text() == "1"


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_green_is_0(system: str, run) -> None:
    job = run(system, GREEN)
    assert job.code == 0, job.log


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_arguments_are_data(system: str, run) -> None:
    job = run(system, GREEN, args="$(touch pwned) ; touch pwned * requirements.in")
    assert job.code == 2, job.log
    assert not (job.folder / "pwned").exists()
    assert "uploadsummary" not in job.log
    if system == "tekton":
        assert (job.folder / "result").read_text() == "2"


def test_uvx_runs_the_checkout(tmp_path: Path) -> None:
    assert shutil.which("uvx")
    done = subprocess.run(
        ["uvx", "--from", ROOT, "buildmatrix", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"buildmatrix, version {__version__}\n", done.stderr
