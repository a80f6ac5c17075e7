"""The action and the block of its page in a runner: `act` reads the files and runs the job."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from github_comments import GitHubStandIn
from recipes import blocks

pytestmark = pytest.mark.network

#: What an installation from a tag needs, and the action itself.
ACTION = (
    *("action.yml", "ci/github", ".github/buildmatrix-matcher.json"),
    *("pyproject.toml", "README.md", "LICENSE", "src", "templates", "docs/rules"),
)
#: Actions of others, which talk to GitHub: scripts that keep what they are called with.
STAND_INS = {
    "actions/setup-python": ("", "echo python-path=$PYTHON >> $GITHUB_OUTPUT", ["python-path"]),
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
    "github/codeql-action/upload-sarif": ("sarif_file category", "cp $SARIF_FILE $KEPT/", []),
}


def write_stand_ins(folder: Path) -> None:
    for name, (inputs, script, outputs) in STAND_INS.items():
        environment = {
            {"path": "INPUT_PATH"}.get(word, word.upper()): f"${{{{ inputs.{word} }}}}"
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
        (folder / name).mkdir(parents=True)
        (folder / name / "action.yml").write_text(yaml.safe_dump(action))


def test_the_block_of_the_page_runs_in_a_runner(tmp_path: Path) -> None:
    workflow, *_ = blocks("github.md")
    project, kept = tmp_path / "project", tmp_path / "kept"
    (project / ".github/workflows").mkdir(parents=True)
    kept.mkdir()
    (project / ".github/workflows/requirements.yml").write_text(workflow)
    (project / "requirements.in").write_text("nvidia-nvtx-cu12==12.8.90\n")
    subprocess.run(["git", "init", "--quiet", project], check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://github.com/acme/inferno"],
                   cwd=project, check=True)  # fmt: skip
    pull = {"number": 7, "head": {"repo": {"full_name": "acme/inferno"}}}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": pull}))
    write_stand_ins(tmp_path)
    action = tmp_path / "action"
    for name in ACTION:
        (action / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, action / name)
    used = re.findall(r"uses: ((\S+?/\S+?)(/\S+)?@\S+)", (ROOT / "action.yml").read_text())
    repositories = {f"{name}@{full.partition('@')[2]}": tmp_path / name for full, name, _ in used}
    repositories["buildmatrix/buildmatrix@v0.1.0"] = action
    with GitHubStandIn() as server:
        environment = {
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
            "GITHUB_GRAPHQL_URL": server.url,
            "KEPT": kept,
            "PIP_NO_COMPILE": "1",
            "PYTHON": sys.executable,
        }
        done = subprocess.run(
            [
                *("act", "pull_request", "--eventpath", tmp_path / "event.json"),
                *("--platform", "ubuntu-24.04=-self-hosted", "--no-cache-server"),
                *("--secret", "GITHUB_TOKEN=token"),
                *(f"--local-repository={name}={path}" for name, path in repositories.items()),
                *(f"--env={name}={value}" for name, value in environment.items()),
            ],
            cwd=project,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "act"), "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        log = done.stdout
        assert done.returncode == 1, log
        assert "set-output:: exit-code=1" in log, log
        assert re.search(r"requirements\.in:1: error: .+\[BM101\]", log), log
        (comment,) = server.comments
    assert comment.body.startswith("<!-- buildmatrix: default -->\n## buildmatrix: requirements.in")
    results = json.loads((kept / "report.sarif").read_text())["runs"][0]["results"]
    assert {result["ruleId"] for result in results} == {"BM101"}
    # Only what this job read, under a key with the digest of the inputs.
    assert re.fullmatch(
        r"buildmatrix-Linux-X64-\d{4}-\d\d-[0-9a-f]{64}\n", (kept / "key").read_text()
    )
    assert 0 < sum(path.stat().st_size for path in (kept / "cache").rglob("*")) < 10_000_000
