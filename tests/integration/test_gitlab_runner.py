"""The GitLab component in a runner: gitlab-ci-local takes it from its address and runs the job."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import npm
import pytest
from components import missing
from conftest import ROOT, Buildmatrix
from recipes import blocks
from registry import RegistryServer
from sigstore_services import SigstoreServices, token

pytestmark = pytest.mark.network

RED, GREEN = "nvidia-nvtx-cu12==12.8.90\n", "idna==3.10\n"
SERVER = "gitlab.example"
SPEC = """\
schema = 1
[project]
name = "inferno"
version = "1.0"
image = "{registry}/acme/inferno"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["requirements.in"]
[backend.cpu]
runtime = "any"
base = "python:{{python}}-slim-bookworm"
[tags]
templates = ["{{version}}"]
"""


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=test")


@dataclass
class Job:
    """What the runner says of the job, and what it kept."""

    outcome: str
    log: str
    #: Copies of what `artifacts: paths:` names.
    kept: Path


@dataclass
class Runner:
    """A project that includes the component; each call is a pipeline of it."""

    folder: Path
    program: tuple[Path, ...]
    wheels: Path

    def __call__(
        self, requirements: str, pipeline: str, name: str = "buildmatrix", **more: str
    ) -> Job:
        """Run the pipeline, and say what came of one of its jobs; `more` are variables."""
        project = self.folder / "project"
        (project / ".gitlab-ci.yml").write_text(pipeline)
        (project / "requirements.in").write_text(requirements)
        # What git does not know, a runner has not, either.
        git(project, "add", ".gitlab-ci.yml", "requirements.in")
        state = project / ".gitlab-ci-local"
        shutil.rmtree(state / "artifacts", ignore_errors=True)
        variables = {
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
            "UV_FIND_LINKS": self.wheels,
            # Nothing is read from the network twice.
            "UV_CACHE_DIR": self.wheels / "cache",
            **more,
        }
        done = subprocess.run(
            [
                *(*self.program, "--force-shell-executor", "--shell-isolation"),
                *("--json-schema-validation=false", "--home", self.folder),
                *(f"--variable={name}={value}" for name, value in variables.items()),
            ],
            cwd=project,
            env={
                **{key: text for key, text in os.environ.items() if key != "DOCKER_CONFIG"},
                "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig"),
                "HOME": str(self.folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        log = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        (outcome,) = re.findall(rf"^ (PASS|WARN|FAIL) +{name}\b", log, re.MULTILINE) or ["none"]
        code = re.search(rf"^{name} +finished in .+? (?:FAIL|WARN) (\d+)", log, re.MULTILINE)
        return Job(f"{outcome} {code[1]}" if code else outcome, log, state / "artifacts" / name)


@pytest.fixture
def runner(tmp_path: Path, wheels: Path) -> Runner:
    for program, package in (("rsync", "rsync"), ("ssh", "openssh-client")):
        if shutil.which(program) is None:
            missing(program, f"install the package {package}")
    component, project = tmp_path / "component", tmp_path / "project"
    shutil.copytree(ROOT / "ci" / "gitlab", component)
    commit(component)
    git(component, "tag", "0.1.0")
    project.mkdir()
    (project / "README.md").touch()
    commit(project)
    git(project, "remote", "add", "origin", f"git@{SERVER}:acme/inferno.git")
    # The instance, as far as a runner asks it.
    (tmp_path / "gitconfig").write_text(
        f'[url "file://{component}"]\n  insteadOf = ssh://git@{SERVER}:22/ci/buildmatrix.git\n'
    )
    program = npm.installed("gitlab") / "node_modules/gitlab-ci-local/dist/index.js"
    return Runner(tmp_path, (npm.NODE, program), wheels)


def test_the_component_of_the_page_runs_in_a_runner(runner: Runner) -> None:
    include, *_ = blocks("gitlab.md")
    red = runner(RED, include)
    assert red.outcome == "FAIL 1", red.log
    assert json.loads((red.kept / "buildmatrix.json").read_text())["findings"]
    assert (red.kept / "buildmatrix.html").stat().st_size
    # The second job has the results of the first one from the cache, and reads no wheel.
    assert "file lists of 1" in red.log, red.log
    again = runner(RED, include)
    assert "imported cache 'buildmatrix'" in again.log
    assert again.outcome == "FAIL 1" and "file lists of" not in again.log, again.log
    green = runner(GREEN, include)
    assert green.outcome == "PASS", green.log


def test_what_is_undecided_passes_where_the_page_says_so(runner: Runner) -> None:
    include, allowed, *_ = blocks("gitlab.md")
    job = runner("no-such-distribution-of-buildmatrix==1\n", f"{include}\n{allowed}")
    assert job.outcome == "WARN 3", job.log


def test_arguments_are_data_to_the_runner(runner: Runner) -> None:
    include, *_ = blocks("gitlab.md")
    args = "$HOME ; touch pwned requirements.in"
    job = runner(GREEN, include.replace("requirements.in --backend cpu", f"'{args}'"))
    assert job.outcome == "FAIL 2" and "there is no $HOME;" in job.log, job.log
    assert not list(runner.folder.rglob("pwned"))


def test_the_page_signs_and_publishes_on_the_default_branch_alone(
    runner: Runner, buildmatrix: Buildmatrix
) -> None:
    if not os.environ.get("BUILDMATRIX_MIRROR"):
        missing("a registry with base images", "run scripts/test, which starts one")
    audit, _, publish = blocks("gitlab.md")
    pipeline = audit + publish.removeprefix("include:\n")
    project = runner.folder / "project"
    with (
        RegistryServer(auth="bearer", login=("ann", "secret")) as registry,
        SigstoreServices() as services,
    ):
        (project / "buildmatrix.toml").write_text(SPEC.format(registry=registry.host))
        (project / "requirements.in").write_text(GREEN)
        assert buildmatrix(project, "lock").code == 0
        git(project, "add", ".")
        variables = {
            "BUILDMATRIX_PREFLIGHT": "none",
            "BUILDMATRIX_TRUST_ROOT": str(services.trust_root(runner.folder / "trust.json")),
            "CI_REGISTRY": registry.host,
            "CI_REGISTRY_USER": "ann",
            "CI_REGISTRY_PASSWORD": "secret",
        }
        identity = {"SIGSTORE_ID_TOKEN": token("https://gitlab.com", sub="ci@gitlab.example")}
        # GitLab gives no identity to a job that does not ask for one, and no image goes out.
        job = runner(GREEN, pipeline, "images", **variables)
        assert job.outcome == "FAIL 2", job.log
        assert "give the job `id_tokens: SIGSTORE_ID_TOKEN: aud: sigstore`" in job.log, job.log
        assert not registry.repositories
        job = runner(GREEN, pipeline, "images", **variables, **identity)
        assert job.outcome == "PASS", job.log
        done = buildmatrix(
            runner.folder, "verify", f"registry:{registry.host}/acme/inferno:1.0",
            "--backend", "cpu", "--identity", "ci@gitlab.example",
            "--issuer", "https://gitlab.com", "--trust-root", "trust.json",
            env={"DOCKER_CONFIG": str(runner.folder / ".docker")},
        )  # fmt: skip
        assert done.code == 0, done.err

        before = len(registry.requests)
        git(project, "checkout", "--quiet", "-b", "change")
        job = runner(RED, pipeline, **variables)
        assert job.outcome == "FAIL 1" and "images" not in job.log, job.log
        assert len(registry.requests) == before
