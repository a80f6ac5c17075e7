"""`action.yml`, run by bash; a stand-in on loopback has the comments of a pull request."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from action_steps import StepsRun, run_action
from conftest import ROOT
from github_comments import Comment, GitHubStandIn
from recipes import blocks

pytestmark = pytest.mark.network

ACTION = ROOT / "action.yml"
#: 90 kB that are unused on a CPU, and a distribution with nothing in it to find.
RED, GREEN = "nvidia-nvtx-cu12==12.8.90\n", "idna==3.10\n"
AUDIT = "--backend cpu --python 3.12 --no-vulnerabilities --no-progress requirements.in"
SPEC = """\
schema = 1
[project]
name = "demo"
version = "1.0"
[defaults]
python = ["3.12"]
requirements = ["requirements.in"]
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
"""
Outputs = Mapping[str, str]


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """What the step that installs puts out; `test_github_runner.py` runs it."""
    cache = tmp_path_factory.mktemp("cache")
    return {"python": sys.executable, "cache": str(cache), "week": "2026-01"}


@dataclass
class Runner:
    """Runs the action on pull request 7 of acme/inferno."""

    folder: Path
    installed: Outputs
    server: GitHubStandIn
    head: str = "acme/inferno"
    event: str = "pull_request"
    used: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, requirements: str, args: str = AUDIT, **inputs: str) -> StepsRun:
        (self.folder / "requirements.in").write_text(requirements)
        payload = {"pull_request": {"number": 7, "head": {"repo": {"full_name": self.head}}}}
        temporary = self.folder / f"temporary-{len(list(self.folder.iterdir()))}"
        temporary.mkdir()
        (temporary / "event.json").write_text(json.dumps(payload))
        return run_action(
            ACTION,
            self.folder,
            temporary,
            {"args": args, **{name.replace("_", "-"): value for name, value in inputs.items()}},
            {
                "GITHUB_EVENT_NAME": self.event,
                "GITHUB_EVENT_PATH": str(temporary / "event.json"),
                "GITHUB_GRAPHQL_URL": self.server.url,
                "GITHUB_REPOSITORY": "acme/inferno",
                "GITHUB_RUN_ID": "4711",
                "GITHUB_SERVER_URL": "https://github.com",
            },
            {
                "github.token": "token",
                "github.event_name": self.event,
                "github.repository": "acme/inferno",
                "github.event.pull_request.head.repo.full_name": self.head,
            },
            self._use,
            {"python": {"python-path": sys.executable}, "install": self.installed},
        )

    def _use(self, name: str, values: Mapping[str, str]) -> Mapping[str, str]:
        self.used.append((name, values))
        if name == "actions/cache/restore":
            return {"cache-hit": "", "cache-primary-key": values["key"]}
        return {}


@pytest.fixture
def runner(tmp_path: Path, installed: Outputs):
    with GitHubStandIn() as server:
        yield Runner(tmp_path, installed, server)


def annotations(log: str) -> list[tuple[str, ...]]:
    """What the problem matcher makes of a log: file, line, severity, message, code."""
    added = re.findall(r"^::add-matcher::(.+)$", log, re.MULTILINE)
    (path,) = added
    (matcher,) = json.loads(Path(path).read_text())["problemMatcher"]
    (pattern,) = matcher["pattern"]
    keys = ("file", "line", "severity", "message", "code")
    assert set(pattern) == {"regexp", *keys}
    part = log.split("::add-matcher::")[1].split("::remove-matcher owner=buildmatrix::")[0]
    found = (re.match(pattern["regexp"], line) for line in part.splitlines()[1:])
    return [tuple(match[pattern[key]] for key in keys) for match in found if match]


def test_green_writes_a_summary_and_a_comment_and_keeps_the_cache(runner: Runner) -> None:
    run = runner(GREEN, comment="true")
    assert run.code == 0, run.log
    assert run.outputs["exit-code"] == "0"
    assert json.loads(Path(run.outputs["report"]).read_text())["findings"] == []
    assert run.summary.startswith("## buildmatrix: requirements.in\n\n**1 target: 0 failed")
    assert annotations(run.log) == []
    (comment,) = runner.server.comments
    assert comment.body.startswith(f"<!-- buildmatrix: default -->\n{run.summary}")
    assert "https://github.com/acme/inferno/actions/runs/4711" in comment.body
    names = [name for name, _ in runner.used]
    assert names == ["actions/cache/restore", "actions/cache/save"]
    assert runner.used[0][1]["path"] == runner.used[1][1]["path"] == runner.installed["cache"]
    assert runner.used[1][1]["key"] == "buildmatrix-Linux-X64-2026-01-hash"


def test_red_keeps_exit_code_1_annotates_and_updates_its_own_comment(runner: Runner) -> None:
    marker = "<!-- buildmatrix: default -->"
    runner.server.comments = [
        Comment("IC_a", f"{marker} copied by somebody", is_ours=False),
        Comment("IC_b", "unrelated"),
        Comment("IC_c", "<!-- buildmatrix: default2 -->\nof another job"),
    ]
    before = list(runner.server.comments)
    assert runner(GREEN, comment="true").code == 0
    run = runner(RED, comment="true", sarif="true")
    assert (run.code, run.outputs["exit-code"]) == (1, "1"), run.log
    assert "**failed**" in run.summary and "BM101" in run.summary
    assert ("requirements.in", "1", "error") in {item[:3] for item in annotations(run.log)}
    assert "BM101" in {item[4] for item in annotations(run.log)}
    assert runner.server.comments[:3] == before
    (ours,) = runner.server.comments[3:]
    assert ours.body.startswith(f"{marker}\n{run.summary}") and "BM101" in ours.body
    name, values = runner.used[-1]
    assert name == "github/codeql-action/upload-sarif"
    assert json.loads(Path(values["sarif_file"]).read_text())["runs"][0]["results"]


def test_the_page_fails_for_new_findings_only(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, part, *_ = blocks("github.md")
    _, step = yaml.safe_load(part)
    monkeypatch.setenv("BUILDMATRIX_NO_VULNERABILITIES", "1")
    (runner.folder / "buildmatrix.toml").write_text(SPEC)
    for requirements, code in ((RED, 0), (GREEN, 1)):
        (runner.folder / "requirements.in").write_text(requirements)
        for command in (
            ["init", "--quiet"],
            ["add", "buildmatrix.toml", "requirements.in"],
            ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "a"],
            ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ):
            subprocess.run(["git", *command], cwd=runner.folder, check=True)
        run = runner(RED, **step["with"])
        assert run.code == code, run.log
        assert ("BM101" in run.summary) == bool(code)


def test_a_wrong_argument_keeps_exit_code_2_and_replaces_what_the_comment_said(
    runner: Runner,
) -> None:
    runner(GREEN, comment="true")
    run = runner(GREEN, args=f"{AUDIT} --no-such-option", comment="true", sarif="true")
    assert (run.code, run.outputs["exit-code"]) == (2, "2")
    assert (run.outputs["report"], run.outputs["sarif"]) == ("", "")
    assert "**No report: exit code 2**" in run.summary
    assert [item.body.count("No report: exit code 2") for item in runner.server.comments] == [1]
    assert "github/codeql-action/upload-sarif" not in run.steps


def test_what_is_undecided_keeps_exit_code_3(runner: Runner) -> None:
    run = runner("no-such-distribution-of-buildmatrix==1\n")
    assert (run.code, run.outputs["exit-code"]) == (3, "3"), run.log
    assert "undecided" in run.summary
    assert [item[2] for item in annotations(run.log)] == ["error"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda runner: setattr(runner, "head", "mallory/inferno"), "No comment: a pull request"),
        (lambda runner: setattr(runner, "event", "pull_request_target"), "No comment: it is for"),
        (lambda runner: setattr(runner.server, "may_write", False), "pull-requests: write"),
        (lambda runner: setattr(runner.server, "token", "other"), "GitHub does not answer"),
    ],
    ids=["fork", "target", "permission", "login"],
)
def test_a_comment_that_cannot_be_written_is_said_and_changes_no_verdict(
    runner: Runner, change: Callable[[Runner], None], text: str
) -> None:
    change(runner)
    run = runner(GREEN, comment="true")
    assert run.code == 0 and text in run.log
    assert runner.server.comments == []
    if text.startswith("No comment"):
        assert runner.server.requests == []


@pytest.mark.parametrize(
    "args",
    [
        "$(touch pwned) `touch pwned` ; touch pwned",
        "requirements.in; touch pwned",
        '"unclosed',
        "--backend 'cpu\n::add-mask::x'",
    ],
)
def test_inputs_are_data(runner: Runner, args: str) -> None:
    run = runner(GREEN, args=args, spec="$(touch pwned)", comment_id="--> <b> $(touch pwned)")
    assert run.code == 2, run.log
    assert not (runner.folder / "pwned").exists()
    assert not re.search(r"^::add-mask", run.log, re.MULTILINE)


def test_modules_in_the_checkout_are_not_imported(runner: Runner) -> None:
    for name in ("json", "buildmatrix", "click", "venv", "sitecustomize"):
        (runner.folder / f"{name}.py").write_text("raise SystemExit('from the checkout')")
    run = runner(GREEN, comment="true")
    assert run.code == 0, run.log


def test_inputs_of_the_documentation_are_those_of_the_action() -> None:
    text = (ROOT / "docs" / "ci" / "github.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (?:`(.*?)`)? ?\|", text, re.MULTILINE)
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    given = {name: value["default"] for name, value in inputs.items() if name != "token"}
    assert dict(rows) == given
