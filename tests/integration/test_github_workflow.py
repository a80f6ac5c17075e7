"""The reusable workflow: its jobs one after the other, run by bash, up to tags in a registry."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from action_steps import Context, StepsRun, run_steps
from conftest import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.network]

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "matrix.yml").read_text())
SPEC = """\
schema = 1
[project]
name = "demo"
version = "1.0"
image = "localhost:5000/NAME"
[defaults]
python = ["3.11"]
variant = ["batch", "server"]
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""


@dataclass
class Workflow:
    """Runs the jobs of the workflow; artifacts are files in `artifacts`."""

    folder: Path
    name: str
    inputs: Mapping[str, str | bool]
    artifacts: Path = field(init=False)

    def __post_init__(self) -> None:
        self.artifacts = self.folder / "artifacts"
        self.artifacts.mkdir()

    def __call__(self, job: str, **context: str) -> StepsRun:
        """One job, in a checkout of its own where it makes one."""
        steps = WORKFLOW["jobs"][job]["steps"]
        place = self.folder / f"{job}-{len(list(self.folder.iterdir()))}"
        if any(step.get("uses", "").startswith("actions/checkout@") for step in steps):
            shutil.copytree(self.folder / "checkout", place)
        else:
            place.mkdir()

        def used(name: str, values: Mapping[str, str]) -> Mapping[str, str]:
            if name == "actions/upload-artifact":
                for path in place.glob(values["path"]):
                    shutil.copy(path, self.artifacts)
            elif name == "actions/download-artifact":
                shutil.copytree(self.artifacts, place, dirs_exist_ok=True)
            return {}

        names = {name.replace("__", "."): value for name, value in context.items()}
        inputs: Context = {f"inputs.{name}": value for name, value in self.inputs.items()}
        done: dict[str, dict[str, str]] = {"install": {}, "login": {}}
        return run_steps(steps, place, place / ".runner", {}, {**inputs, **names}, used, done)


@pytest.fixture
def workflow(engine: None, tmp_path: Path) -> Iterator[Workflow]:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    name = f"test-{uuid.uuid4().hex[:12]}"
    (checkout / "buildmatrix.toml").write_text(SPEC.replace("NAME", name))
    (checkout / "base.in").write_text("idna==3.10\n")
    subprocess.run(["buildmatrix", "lock"], cwd=checkout, check=True, capture_output=True)
    declared = WORKFLOW[True]["workflow_call"]["inputs"]
    inputs = {key: value.get("default", "") for key, value in declared.items()}
    inputs |= {"stage": True, "args": "--engine oci --no-smoke --no-vulnerabilities '--jobs' 1"}
    yield Workflow(tmp_path, name, inputs)


def jobs_of(run: StepsRun) -> list[dict[str, Any]]:
    matrix = run.context["steps.plan.outputs.matrix"]
    assert isinstance(matrix, str)
    return json.loads(matrix)["include"]


def tags(name: str) -> set[str]:
    connection = http.client.HTTPConnection("localhost", 5000, timeout=300)
    connection.request("GET", f"/v2/{name}/tags/list")
    answer = json.load(connection.getresponse())
    return set(answer["tags"] or ()) if "tags" in answer else set()


def test_targets_are_planned_built_reported_and_promoted(workflow: Workflow) -> None:
    plan = workflow("plan")
    assert plan.code == 0, plan.log
    ids = [job["id"] for job in jobs_of(plan)]
    assert ids == ["cpu-py311-batch", "cpu-py311-server"]
    matrix = str(plan.context["steps.plan.outputs.matrix"])

    first = workflow("build", matrix__id=ids[0])
    assert first.code == 0, first.log
    # The second job left no report: nothing is green, and nothing promoted.
    report = workflow("report", needs__plan__outputs__matrix=matrix)
    assert report.code == 3
    assert f"::error::no report of {ids[1]}" in report.log

    second = workflow("build", matrix__id=ids[1])
    assert second.code == 0, second.log
    report = workflow("report", needs__plan__outputs__matrix=matrix)
    assert report.code == 0, report.log
    assert "**2 targets: 0 failed" in report.summary
    assert tags(workflow.name) == set()

    promote = workflow("promote")
    assert promote.code == 0, promote.log
    assert {f"1.0-{target}" for target in ids} <= tags(workflow.name)


def test_arguments_are_split_and_never_run(workflow: Workflow) -> None:
    for args in ("$(touch pwned) ; touch pwned", "'unclosed"):
        workflow.inputs = {**workflow.inputs, "args": args}
        run = workflow("build", matrix__id="cpu-py311-batch")
        assert run.code != 0
        assert not list(workflow.folder.glob("*/pwned"))
        assert not list(workflow.artifacts.iterdir())
