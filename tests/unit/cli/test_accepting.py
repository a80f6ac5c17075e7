"""`--waivers`, `--baseline` and `--format` of `report` and `scan`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.api.judging import policy_of, replace_policy
from buildmatrix.cli.output import FORMATS
from buildmatrix.commands.workspace import Workspace
from buildmatrix.judge.model import Finding, TargetResult, Verdict
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports.run import assemble

WAIVERS = """
[[waive]]
rule = "BM101"
distribution = "nvidia-*"
reason = "until the index is right"
owner = "team@example.com"
expires = 2999-01-31
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(one) for one in arguments])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    finding = Finding(
        rule="BM101",
        name="foreign-dependency",
        severity="error",
        target="cpu-py312",
        backend="cpu",
        vendor="nvidia",
        message="nvidia-nccl-cu12 2.27.3 belongs to NVIDIA CUDA",
        distribution="nvidia-nccl-cu12",
        version="2.27.3",
        chain=("base.in:1", "nvidia-nccl-cu12 2.27.3"),
        fingerprint="0" * 32,
    )
    target = TargetResult("cpu-py312", "cpu", {"lock": "failed"})
    path = tmp_path / "report.json"
    path.write_text(
        as_json.render(
            assemble(
                "buildmatrix.toml",
                "2026-11-20",
                targets=[target],
                findings=[finding],
                verdicts=[Verdict("nvidia-nccl-cu12", "2.27.3", "cpu", "bloat", "it is NVIDIA's")],
            )
        )
    )
    return path


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A site-packages with one distribution that no CPU image needs."""
    info = tmp_path / "site" / "nvidia_nccl_cu12-2.27.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-nccl-cu12\nVersion: 2.27.3\n"
    )
    (info / "RECORD").write_text("")
    return tmp_path / "site"


def test_a_report_is_red_until_a_waiver_or_the_baseline_covers_it(saved, tmp_path, capsys) -> None:
    waivers = tmp_path / "waivers.toml"
    waivers.write_text(WAIVERS)
    assert run(capsys, "report", saved)[0] == 1
    code, out, _ = run(capsys, "report", saved, "--waivers", waivers)
    assert (code, "until the index is right" in out) == (0, True)
    code, out, _ = run(capsys, "report", saved, "--baseline", saved)
    assert (code, "1 in the baseline" in out) == (0, True)


def test_a_scan_is_red_until_a_waiver_or_the_baseline_covers_it(venv, tmp_path, capsys) -> None:
    waivers, before = tmp_path / "waivers.toml", tmp_path / "before.json"
    waivers.write_text(WAIVERS)
    scan = ("scan", f"dir:{venv}", "--backend", "cpu", "--no-cache")
    assert run(capsys, *scan, "--format", f"json={before}")[0] == 1
    code, out, _ = run(capsys, *scan, "--waivers", waivers, "--format", "json")
    assert code == 0
    assert json.loads(out)["targets"][0]["gates"]["scan"] == "passed"
    assert run(capsys, *scan, "--baseline", before)[0] == 0


def test_a_waiver_that_ran_out_is_told_by_a_scan(venv, tmp_path, capsys) -> None:
    waivers = tmp_path / "waivers.toml"
    waivers.write_text(WAIVERS.replace("2999", "2020"))
    scan = ("scan", f"dir:{venv}", "--backend", "cpu", "--no-cache")
    code, out, _ = run(capsys, *scan, "--waivers", waivers)
    assert code == 1
    assert "expired on 2020-01-31" in out


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--waivers", "[[waive]]\nrule = 'BM999'\n", "waivers[0]"),
        ("--waivers", WAIVERS.replace("BM101", "BM999"), "there is no rule BM999"),
        ("--waivers", "reason\n", "this is not TOML"),
        ("--baseline", "{}", "is not a report of buildmatrix"),
        ("--baseline", None, "cannot be read"),
    ],
)
def test_mistakes_in_either_file_are_usage_errors(
    saved, tmp_path, capsys, option, text, message
) -> None:
    path = tmp_path / "given"
    if text is not None:
        path.write_text(text)
    code, _, error = run(capsys, "report", saved, option, path)
    assert code == 2
    assert str(path) in error and message.replace("waivers[0]", "waive[0]") in error


def test_a_baseline_of_another_format_is_refused_by_its_name(saved, capsys) -> None:
    saved.write_text(saved.read_text().replace("report/1", "report/9"))
    code, _, error = run(capsys, "scan", "dir:.", "--backend", "cpu", "--baseline", saved)
    assert code == 2
    assert "has the format buildmatrix/report/9" in error


def test_both_can_come_from_the_environment(saved, capsys, monkeypatch) -> None:
    monkeypatch.setenv("BUILDMATRIX_BASELINE", str(saved))
    assert run(capsys, "report", saved)[0] == 0


@pytest.mark.usefixtures("a_day")
def test_every_format_is_written_where_it_was_asked_for(saved, tmp_path, capsys) -> None:
    places = {name: tmp_path / f"out.{name}" for name in FORMATS}
    formats = [part for name, path in places.items() for part in ("--format", f"{name}={path}")]
    code, out, _ = run(capsys, "report", saved, *formats)
    assert (code, out) == (1, "")
    # GitLab's report of vulnerabilities is an empty list.
    for name, path in places.items():
        is_said = name != "dependency-scanning"
        assert ("nvidia-nccl-cu12" in path.read_text()) == is_said, path


SPEC = """
[project]
name = "inferno"
version = "1"
[defaults]
python = "3.11"
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:3.11-slim@sha256:1111111111111111111111111111111111111111111111111111111111111111"
"""
ACCEPTED = {
    "a waiver": WAIVERS.replace("BM101", "BM201").replace(
        'distribution = "nvidia-*"', 'path = "*"'
    ),
    "a rule that is off": '[policy.severity]\nBM201 = "off"\n',
    "a lower severity": '[policy.severity]\nBM201 = "note"\n',
}


@pytest.mark.parametrize("change", ACCEPTED)
def test_an_image_is_judged_by_the_policy_of_another_revision(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "base.in").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/libcudart.so.12").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    for line in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m 1"):
        subprocess.run(["git", *line.split()], check=True)
    (tmp_path / "buildmatrix.toml").write_text(SPEC + ACCEPTED[change])
    scan = (
        "scan",
        "-q",
        "dir:tree",
        "--select",
        "cpu-py311-default",
        "--no-cache",
        "--format",
        "concise",
    )
    code, own, _ = run(capsys, *scan)
    for policy in ("HEAD", "then.toml"):
        if policy == "then.toml":
            Path(policy).write_text(SPEC)
        then, out, err = run(capsys, *scan, "--policy", policy)
        assert (then, "error" in out) == (1, True), (out, err)
    assert (code, "error" in own) == (0, False), own
    code, _, err = run(capsys, *scan, "--policy", "no-such")
    assert (code, "git knows no revision 'no-such'" in err) == (2, True)


def test_accepted_checks_are_those_of_the_other_specification(tmp_path: Path) -> None:
    (tmp_path / "base.in").touch()
    waive = '[[waive-check]]\nrung = "import"\ncheck = "*"\nreason = "r"\nowner = "o"\n'
    waive += "expires = 2999-01-31\n"
    for name, text in (("now.toml", SPEC + waive), ("then.toml", SPEC)):
        (tmp_path / name).write_text(text)
    workspace = Workspace(tmp_path / "now.toml")
    now = workspace.load()
    assert now.targets[0].check_waivers
    then = replace_policy(now, policy_of(str(tmp_path / "then.toml"), workspace))
    assert (then.targets[0].check_waivers, then.waivers) == ((), ())
    assert replace_policy(now, None) is now
