"""The action, the reusable workflow and the blocks of their page in a runner: `act`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from components import missing
from conftest import ROOT, Buildmatrix, downloads
from github_comments import GitHubStandIn
from recipes import blocks
from registry import RegistryServer
from sigstore_services import GITHUB, WORKFLOW, SigstoreServices

from buildmatrix.images.store.cache import default_folder

pytestmark = pytest.mark.network

#: What an installation from a tag needs, the action and the workflow.
ACTION = (
    *("action.yml", "ci/github", ".github/buildmatrix-matcher.json"),
    *(".github/workflows/matrix.yml", "pyproject.toml", "README.md", "LICENSE"),
    *("src", "templates", "docs/rules", "tools/compile_catalogue.py"),
)
#: Actions of others, which talk to GitHub: scripts that keep what they are called with.
STAND_INS = {
    "actions/setup-python": (
        "update-environment",
        "echo python-path=$PYTHON >> $GITHUB_OUTPUT; "
        '[ "$UPDATE_ENVIRONMENT" = false ] || dirname $PYTHON >> $GITHUB_PATH',
        ["python-path"],
    ),
    "actions/cache": ("path key restore-keys", "true", []),
    "actions/cache/restore": (
        "path key restore-keys",
        "echo cache-primary-key=$KEY >> $GITHUB_OUTPUT",
        ["cache-primary-key", "cache-hit"],
    ),
    "actions/cache/save": (
        "path key",
        "cp -r $INPUT_PATH $KEPT/cache && echo $KEY > $KEPT/key",
        [],
    ),
    "actions/upload-artifact": (
        "name path if-no-files-found",
        "mkdir -p $KEPT/artifacts && ! ls $INPUT_PATH || cp $INPUT_PATH $KEPT/artifacts",
        [],
    ),
    "actions/download-artifact": (
        "pattern merge-multiple",
        "! ls $KEPT/artifacts/$PATTERN || cp $KEPT/artifacts/$PATTERN .",
        [],
    ),
    "github/codeql-action/upload-sarif": ("sarif_file category", "cp $SARIF_FILE $KEPT/", []),
}
RED = "nvidia-nvtx-cu12==12.8.90\n"
GREEN = "idna==3.10\n"
SPEC = """\
schema = 1
[project]
name = "inferno"
version = "1.0"
image = "{registry}/inferno"
[defaults]
python = ["3.11"]
variant = ["batch", "server"]
requirements = ["{{variant}}.in"]
[backend.cpu]
runtime = "any"
base = "python:{{python}}-slim-bookworm"
"""


def write_stand_ins(folder: Path) -> None:
    for name, (inputs, script, outputs) in STAND_INS.items():
        environment = {
            {"path": "INPUT_PATH"}.get(word, word.upper().replace("-", "_")): (
                f"${{{{ inputs.{word} }}}}"
            )
            for word in inputs.split()
        }
        action = {
            "name": name,
            "inputs": {word: {"required": False} for word in [*inputs.split(), "python-version"]},
            "outputs": {
                word: {"value": f"${{{{ steps.run.outputs.{word} }}}}"} for word in outputs
            },
            "runs": {
                "using": "composite",
                "steps": [{"id": "run", "shell": "bash", "env": environment, "run": script}],
            },
        }
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "action.yml").write_text(yaml.safe_dump(action))


@dataclass
class Runner:
    """Runs workflows of acme/inferno; `kept` has artifacts and what other actions were given."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project, self.kept = self.folder / "project", self.folder / "kept"
        (self.project / ".github/workflows").mkdir(parents=True)
        self.kept.mkdir()
        git = ("git", "-C", self.project)
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
        remote = ["remote", "add", "origin", "https://github.com/acme/inferno"]
        subprocess.run([*git, *remote], check=True)
        write_stand_ins(self.folder)
        self.action = self.folder / "action"
        for name in ACTION:
            (self.action / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.action / name)

    def __call__(self, workflow: str, event: str, head: str = "acme/inferno") -> tuple[int, str]:
        """Exit code and log of the jobs that an event of `head` starts."""
        (self.project / ".github/workflows/workflow.yml").write_text(workflow)
        payload: dict[str, object] = {"ref": "refs/heads/main"}
        if event == "pull_request":
            payload = {"pull_request": {"number": 7, "head": {"repo": {"full_name": head}}}}
        (self.folder / "event.json").write_text(json.dumps(payload))
        text = "".join(
            (self.action / name).read_text()
            for name in ("action.yml", ".github/workflows/matrix.yml")
        )
        used = re.findall(r"uses: ((\S+?/\S+?)(?:/\S+)?@(\S+))", text)
        repositories = {f"{name}@{commit}": self.folder / name for _, name, commit in used}
        repositories["buildmatrix/buildmatrix@v0.1.0"] = self.action
        environment = {
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
            "KEPT": str(self.kept),
            "PYTHON": sys.executable,
            "TERM": "dumb",
            **downloads(),
            **self.environment,
        }
        done = subprocess.run(
            [
                *("act", event, "--eventpath", self.folder / "event.json"),
                *("--platform", "ubuntu-24.04=-self-hosted", "--no-cache-server"),
                *("--actor", "ann", "--secret", "GITHUB_TOKEN=token"),
                *(f"--local-repository={name}={path}" for name, path in repositories.items()),
                *(f"--env={name}={value}" for name, value in environment.items()),
            ],
            cwd=self.project,
            env={
                **os.environ,
                "XDG_CACHE_HOME": str(self.folder / "act"),
                "HOME": str(self.folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.mark.parametrize(
    "head",
    [
        "acme/inferno",
        # test_github_action.py runs the steps for a fork in every test run.
        pytest.param("mallory/inferno", marks=pytest.mark.weekly),
    ],
)
def test_the_block_of_the_page_runs_in_a_runner(head: str, runner: Runner) -> None:
    """A fork's pull request is as red; its token cannot write, and what needs that is left out."""
    workflow, *_ = blocks("github.md")
    (runner.project / "requirements.in").write_text(RED)
    is_fork = head != "acme/inferno"
    with GitHubStandIn(may_write=not is_fork) as server:
        runner.environment["GITHUB_GRAPHQL_URL"] = server.url
        code, log = runner(workflow, "pull_request", head)
        assert code == 1, log
        assert "set-output:: exit-code=1" in log, log
        assert re.search(r"requirements\.in:1: error: .+\[BM101\]", log), log
        comments = server.comments
        if is_fork:
            assert "No comment: a pull request from a fork." in log and not server.requests
    if is_fork:
        assert not comments and not (runner.kept / "report.sarif").exists()
        return
    (comment,) = comments
    assert comment.body.startswith("<!-- buildmatrix: default -->\n## buildmatrix: requirements.in")
    results = json.loads((runner.kept / "report.sarif").read_text())["runs"][0]["results"]
    assert {result["ruleId"] for result in results} == {"BM101"}
    # Only what this job read, under a key with the digest of the inputs.
    assert re.fullmatch(
        r"buildmatrix-Linux-X64-\d{4}-\d\d-[0-9a-f]{64}\n", (runner.kept / "key").read_text()
    )
    kept = sum(path.stat().st_size for path in (runner.kept / "cache").rglob("*"))
    assert 0 < kept < 10_000_000


@dataclass
class Images:
    """The project of the page's second workflow, its registry and its authority."""

    runner: Runner
    registry: RegistryServer
    services: SigstoreServices

    def __call__(
        self,
        requirements: Mapping[str, str],
        event: str,
        head: str = "acme/inferno",
        args: str = "",
    ) -> tuple[int, str]:
        """Lock, and run the page's workflow with these arguments of `build`."""
        project = self.runner.project
        (project / "buildmatrix.toml").write_text(SPEC.format(registry=self.registry.host))
        for variant, text in requirements.items():
            (project / f"{variant}.in").write_text(text)
        subprocess.run(["buildmatrix", "lock"], cwd=project, check=True, capture_output=True)
        _, _, workflow, *_ = blocks("github.md")
        more = f"    with:\n      registry: {self.registry.host}\n      args: {json.dumps(args)}\n"
        return self.runner(workflow.replace("    with:\n", more), event, head)

    def tags(self) -> set[str]:
        known = self.registry.repositories.get("inferno")
        return {name for name in known.manifests if name.startswith("1.0")} if known else set()


@pytest.fixture(scope="module")
def python(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of all jobs, which has what they install: it is read from the index once."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = ["uv", "pip", "install", "--quiet", "--python", folder / "bin/python"]
    wanted = ["--find-links", wheels, "buildmatrix[keyless]==0.1.0"]
    subprocess.run([*command, *wanted], check=True)
    return folder / "bin/python"


@pytest.fixture
def images(runner: Runner, python: Path, monkeypatch: pytest.MonkeyPatch):
    mirror = os.environ.get("BUILDMATRIX_MIRROR")
    if not mirror:
        missing("a registry with base images", "run scripts/test, which starts one")
    with (
        RegistryServer(auth="bearer", login=("ann", "token")) as registry,
        SigstoreServices() as services,
    ):
        services.in_github(monkeypatch)
        identity = ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL")
        runner.environment |= {
            **{name: os.environ[name] for name in identity},
            # A runner that stays has read the base image.
            "BUILDMATRIX_CACHE": str(default_folder(os.environ).parent),
            "BUILDMATRIX_ENGINE": "oci",
            "BUILDMATRIX_MIRROR": mirror,
            "BUILDMATRIX_PREFLIGHT": "none",
            "BUILDMATRIX_TRUST_ROOT": str(services.trust_root(runner.folder / "trust.json")),
            "DOCKER_CONFIG": str(runner.folder / "docker"),
            "PYTHON": str(python),
        }
        yield Images(runner, registry, services)


def test_the_workflow_of_the_page_builds_signs_and_tags(
    images: Images, buildmatrix: Buildmatrix
) -> None:
    code, log = images({"batch": GREEN, "server": GREEN}, "push")
    assert code == 0, log
    targets = ["cpu-py311-batch", "cpu-py311-server"]
    assert {f"1.0-{target}" for target in targets} <= images.tags(), log
    root = images.services.trusted_root(images.runner.folder / "root.json")
    for target in targets:
        image = f"registry:{images.registry.host}/inferno:1.0-{target}"
        done = buildmatrix(
            images.runner.folder, "verify", image, "--backend", "cpu", "--identity", WORKFLOW,
            "--issuer", GITHUB, "--trust-root", str(root),
            env={"DOCKER_CONFIG": str(images.runner.folder / "docker")},
        )  # fmt: skip
        assert done.code == 0, done.err


def test_a_red_target_leaves_every_tag_where_it_is(images: Images) -> None:
    code, log = images({"batch": GREEN, "server": RED}, "push")
    assert code == 1, log
    assert {path.name for path in (images.runner.kept / "artifacts").iterdir()} == {
        "report-cpu-py311-batch.json",
        "report-cpu-py311-server.json",
    }
    assert "BM101" in log and "Set the tags" not in log, log
    assert images.tags() == set()


def test_a_pull_request_from_a_fork_is_judged_and_publishes_nothing(images: Images) -> None:
    """It has no secret and no identity."""
    for name in ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL"):
        del images.runner.environment[name]
    code, log = images({"batch": GREEN, "server": RED}, "pull_request", "mallory/inferno")
    assert code == 1, log
    assert "BM101" in log, log
    assert not images.registry.requests and not images.services.leaves


def test_arguments_are_data_and_a_job_without_a_report_is_undecided(images: Images) -> None:
    args = "$(touch pwned) ; touch pwned"
    code, log = images({"batch": GREEN, "server": GREEN}, "push", args=args)
    assert code == 1, log
    for target in ("cpu-py311-batch", "cpu-py311-server"):
        assert f"no report of {target}" in log, log
    assert not list(images.runner.folder.rglob("pwned"))
    assert images.tags() == set()
