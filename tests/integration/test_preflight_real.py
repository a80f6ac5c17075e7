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
    """skia-python links libEGL.so.1, which a slim image does not have, as opencv-python libGL."""
    requirements = project / "requirements.txt"
    requirements.write_text("skia-python==144.1\n")
    line = ("build", "--engine", "oci", "--no-vulnerabilities", "--preflight", "auto")
    run = buildmatrix(project, *line, "--format", "json=report.json")
    assert run.code == 1, run.err
    (target,) = json.loads((project / "report.json").read_text())["targets"]
    assert target["gates"]["smoke"] == "failed"
    assert "skia: libEGL.so.1 is missing, which importing it needs" in target["error"]
    # What draws nothing has no need of it.
    requirements.write_text("numpy\n")
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
