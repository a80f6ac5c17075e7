"""Preflight of a Python environment of this machine, where no sandbox works."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.engines.oci import sandboxes
from buildmatrix.engines.oci.confinement import Confined
from buildmatrix.preflight.environment import Direct


def packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a module that fails, and would be shadowed by the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandboxes, "sandboxes", lambda: iter(()))
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    (packages(folder) / "demo.py").write_text("raise RuntimeError('broken')\n")
    info = packages(folder) / "demo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: demo\nVersion: 1.0\n")
    (info / "RECORD").write_text("demo.py,,\ndemo-1.0.dist-info/METADATA,,\n")
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["preflight", *words])
    assert isinstance(stop.value.code, int)
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize("prefix", ["env", "dir"])
def test_rungs_run_with_its_python_and_say_that_no_sandbox_was_there(
    environment: Path, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # A module of the folder that somebody works in is none of the environment.
    Path("demo.py").touch()
    name = f"{prefix}:{environment}"
    code, out, err = run(capsys, name, "--backend=cpu", "--level=device")
    assert code == 1
    assert out.startswith(f"{name} without a sandbox\n")
    assert "RuntimeError: broken" in out
    assert "without a sandbox, with your files and network: no program for it" in err
    (packages(environment) / "demo.py").write_text("")
    code, out, _ = run(capsys, name, "--backend=cpu", "--level=device", "--format=json")
    assert code == 0
    (target,) = json.loads(out)["targets"]
    assert (target["image"], target["sandbox"]) == (name, "none")
    states = [(rung["rung"], rung["state"]) for rung in target["rungs"]]
    assert states == [("static", "not-run"), ("import", "passed"), ("device", "passed")]


def test_results_are_compared_with_an_accepted_baseline(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (f"env:{environment}", "--backend=cpu")
    (packages(environment) / "demo.py").write_text("")
    assert run(capsys, *line, "--level=import", "--accept=baseline.json")[0] == 0
    assert run(capsys, *line, "--level=import", "--baseline=baseline.json")[0] == 0


def test_a_folder_without_a_python_and_a_missing_backend_are_usage_errors(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, f"env:{environment.parent}", "--backend=cpu")
    assert (code, "is no Python environment" in err) == (2, True)
    code, _, err = run(capsys, f"env:{environment}")
    assert (code, "give --backend" in err) == (2, True)


def test_a_cluster_runs_no_folder_of_this_machine(
    environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for prefix in ("env", "dir"):
        name = f"{prefix}:{environment}"
        code, _, err = run(capsys, name, "--backend=cuda", "--kubernetes", "-o", "jobs")
        assert (code, f"{name} is a folder; name its image" in err) == (2, True)
    assert not Path("jobs").exists()


def test_a_sandbox_in_which_another_python_answers_is_none(
    environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sandboxes have a `/tmp` of their own, and PATH goes on to other folders."""

    class Elsewhere(Direct):
        name = "elsewhere"

        def line(self, confined: Confined, own: Path) -> list[str]:
            return ["/bin/echo", "/usr"]

    monkeypatch.setattr(sandboxes, "sandboxes", lambda: iter([Elsewhere("/bin/echo")]))
    monkeypatch.setattr(Elsewhere, "confines_root", True)
    (packages(environment) / "demo.py").write_text("")
    code, out, err = run(capsys, f"env:{environment}", "--backend=cpu", "--level=import")
    assert (code, "without a sandbox" in out, "elsewhere: /usr" in err) == (0, True, True)
