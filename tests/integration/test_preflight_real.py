"""`preflight`, and how far `build` climbs by itself, on images that fail or hold for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Buildmatrix

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

TARGET = "cpu-py311-default"
SPEC = """\
[project]
name = "ladder"
version = "1.0"
[defaults]
python = "3.11"
requirements = ["requirements.txt"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
[node-class.rack]
backend = "cpu"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    return tmp_path


def test_the_library_that_an_import_lacks_fails_the_build_by_its_name(
    project: Path, buildmatrix: Buildmatrix
) -> None:
    """opencv-python links libGL.so.1, which a slim image does not have: a classic."""
    requirements = project / "requirements.txt"
    requirements.write_text("opencv-python==4.10.0.84\n")
    line = ("build", "--engine", "oci", "--no-vulnerabilities", "--preflight", "auto")
    run = buildmatrix(project, *line, "--format", "json=report.json")
    assert run.code == 1, run.err
    (target,) = json.loads((project / "report.json").read_text())["targets"]
    assert target["gates"]["smoke"] == "failed"
    assert "cv2: libGL.so.1 is missing, which importing it needs" in target["error"]
    # What is built without windows has no need of it.
    requirements.write_text("opencv-python-headless==4.10.0.84\n")
    run = buildmatrix(project, *line, "--format", "json=report.json")
    assert run.code == 0, run.err
    (target,) = json.loads((project / "report.json").read_text())["targets"]
    assert target["gates"]["smoke"] == "passed"
    # `numpy` sees the processor; the rest is left to whoever has a machine of the class.
    assert [(rung["rung"], rung["state"], rung["run_on"]) for rung in target["rungs"][:3]] == [
        ("import", "passed", []),
        ("device", "passed", []),
        ("compute", "not-run", ["rack"]),
    ]
    # The journal knows that, and nothing runs again.
    again = buildmatrix(project, *line, "--format", "json")
    assert json.loads(again.out)["targets"][0]["rungs"] == target["rungs"]
    assert "rung" not in again.err
    run = buildmatrix(project, "preflight", TARGET, "--level", "import", "--format", "json")
    (climbed,) = json.loads(run.out)["targets"]
    assert [(rung["rung"], rung["state"]) for rung in climbed["rungs"]] == [
        ("static", "passed"),
        ("import", "passed"),
    ]
