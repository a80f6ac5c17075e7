"""The two matrices of the repository, built for real: one must hold, one must fail."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Buildmatrix, Run, copy_of

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

GOOD = {
    "cuda12.8-py311-server",
    "rocm7.2-py311-server",
    "oneapi2025.0-py311-server",
    "cpu-py311-server",
}

#: Built as well, so that a scan finds it; one more each week.
SCANNED = ["oneapi2025.0-py311-ctranslate2"]
if os.environ.get("BUILDMATRIX_WEEKLY"):
    SCANNED.append("rocm7.2-py311-bitsandbytes")
#: Smuggled target → what shows it: the names in the lock, or the files that it holds; what must be
#: named: distribution, library or package, requirement line.
SMUGGLED = {
    "cpu-py311-xgboost": ("names", "nvidia-nccl-cu12", None, "xgboost.in:2"),
    "cpu-py311-xgboost-without-nccl": ("files", "xgboost", "libxgboost.so", "xgboost.in:2"),
    "cpu-py311-sentences": ("names", "nvidia-cublas", None, "sentences.in:1"),
    "rocm7.2-py311-bitsandbytes": (
        "files",
        "bitsandbytes",
        "libbitsandbytes_cuda",
        "bitsandbytes.in:1",
    ),
    "cuda12.8-py311-cuda13": ("names", "nvidia-cuda-nvrtc", None, "cuda13.in:1"),
    "oneapi2025.0-py311-ctranslate2": (
        "files",
        "ctranslate2",
        "libctranslate2",
        "ctranslate2.in:1",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example matrix."""
    return copy_of(["buildmatrix.toml", "images"], tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def first(good: Path, buildmatrix: Buildmatrix) -> Run:
    """The first build of the example matrix."""
    return buildmatrix(good, "build", "--preflight", "auto", "--format", "json", timeout=1800)


def gates(run: Run) -> dict[str, dict[str, str]]:
    """Target → gate → state."""
    return {target["id"]: target["gates"] for target in run.report()["targets"]}


def test_the_example_matrix_is_built_and_every_image_is_what_it_says(first: Run) -> None:
    assert first.code == 0, first.err
    assert gates(first) == {
        target: {"lock": "passed", "build": "passed", "scan": "passed", "smoke": "passed"}
        for target in GOOD
    }
    report = first.report()
    climbed = {target["backend"]: target["rungs"] for target in report["targets"]}
    for rungs in climbed.values():
        assert (rungs[0]["rung"], rungs[0]["state"]) == ("import", "passed"), rungs
    assert [rung["state"] for rung in climbed["cpu"][:3]] == ["passed", "passed", "not-run"]
    assert climbed["cuda"][-1]["run_on"] == ["h200"]
    assert not [f for f in report["findings"] if f["severity"] == "error"]
    assert report["unread"] == []
    for target in report["targets"]:
        assert target["digest"].startswith("sha256:")


@pytest.mark.usefixtures("first")
def test_a_second_run_finds_everything_done(good: Path, buildmatrix: Buildmatrix) -> None:
    run = buildmatrix(good, "build", "--preflight", "auto", "--format", "json")

    assert run.code == 0, run.err
    assert {target["id"] for target in run.report()["targets"] if target["cached"]} == GOOD
    assert set(re.findall(r"\[(\S+)\] passed: nothing to do", run.err)) == GOOD, run.err


def cpu_image(run: Run) -> str:
    (image,) = (t["image"] for t in run.report()["targets"] if t["backend"] == "cpu")
    return image


def test_an_image_runs_as_a_user_without_rights_and_holds_no_tool_of_the_build(
    first: Run,
) -> None:
    script = "id -u; command -v uv pip; ls /run/secrets 2>/dev/null; cat /opt/venv/pyvenv.cfg"
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", cpu_image(first), "sh", "-c", script],
        capture_output=True,
        text=True,
    )

    assert done.stdout.splitlines()[0] == "10001"
    assert "/uv" not in done.stdout and "pip" not in done.stdout


def test_a_chain_of_a_target_goes_from_the_requirement_line_to_the_layer(
    good: Path, first: Run, buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    asked = ("why", "cpu-py311-server", "libscipy_openblas64_")
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    # The build has read the layers.
    answer = buildmatrix(good, *asked, "--format", "json", env=nowhere)

    assert answer.code == 0, answer.err
    (told,) = json.loads(answer.out)["answers"]
    (chain,) = told["chains"]
    assert chain[0]["name"] == "images/requirements/base.in:2"
    assert chain[1]["name"].startswith("numpy ")
    assert chain[-1]["rule"] == "rpath"
    assert told["layer"]["instruction"] == "COPY /opt/venv /opt/venv"
    dockerfile, _, line = told["layer"]["place"].partition(":")
    written = (good / dockerfile).read_text().splitlines()[int(line) - 1]
    assert written == "COPY --from=build /opt/venv /opt/venv"
    assert any("COPY /opt/venv /opt/venv" in line for line in history(cpu_image(first)))

    # The symbols are in the image, which the engine still has.
    symbols = buildmatrix(good, *asked, "--format", "json", "--symbols")
    (used,) = json.loads(symbols.out)["answers"]
    assert used["symbols"]["count"] > 0

    # What was read is kept: the image, and even the engine, may be gone.
    again = buildmatrix(good, *asked, "--format", "json", env=nowhere)
    assert (again.out, again.err) == (answer.out, "")
    for kind in ("layers", "made"):
        shutil.rmtree(good / f".buildmatrix/state/cpu-py311-server/{kind}")
    without = buildmatrix(good, *asked, env=nowhere)
    assert without.code == 0
    assert "Not known: which layer put a file there: the Docker daemon" in without.out


def history(image: str) -> list[str]:
    """Instructions of an image's layers, as Docker shows them."""
    command = ["docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def smuggled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the smuggled matrix."""
    return copy_of(["images/smuggled"], tmp_path_factory.mktemp("bad")) / "images/smuggled"


@pytest.fixture(scope="module")
def audited(smuggled: Path, buildmatrix: Buildmatrix) -> Run:
    """The first build of the smuggled matrix: it locks, and reads the wheels on the index."""
    return buildmatrix(smuggled, "build", "--format", "json", timeout=1800)


@pytest.fixture(scope="module")
def unaudited(smuggled: Path, audited: Run, buildmatrix: Buildmatrix) -> Run:
    """A build of the same locks that reads images alone."""
    named = [target for target, (shown_by, *_) in SMUGGLED.items() if shown_by == "names"]
    selection = [part for target in (*named, *SCANNED) for part in ("--select", target)]
    arguments = ("build", *selection, "--no-audit", "--format", "json")
    return buildmatrix(smuggled, *arguments, timeout=1800)


def names_everything(run: Run) -> None:
    findings = run.report()["findings"]
    for target in gates(run):
        _, distribution, library, line = SMUGGLED[target]
        errors = [f for f in findings if f["target"] == target and f["severity"] == "error"]
        named = [f for f in errors if f["distribution"] == distribution]
        assert named, (target, errors)
        assert any(f["chain"] and f["chain"][0].endswith(line) for f in named), named
        if library:
            told = [(f["path"] or "") + str(f["evidence"]) for f in named]
            assert any(library in text for text in told), named


def test_what_the_wheels_show_on_the_index_is_not_built(audited: Run) -> None:
    assert audited.code == 1, audited.err
    assert gates(audited).keys() == SMUGGLED.keys()
    names_everything(audited)
    for states in gates(audited).values():
        assert states == {"lock": "failed", **dict.fromkeys(("build", "scan", "smoke"), "not-run")}


def test_every_smuggled_target_fails_and_names_library_distribution_and_requirement_line(
    unaudited: Run,
) -> None:
    assert unaudited.code == 1, unaudited.err
    names_everything(unaudited)
    gate = {"names": "lock", "files": "scan"}
    for target, states in gates(unaudited).items():
        assert states[gate[SMUGGLED[target][0]]] == "failed", target


@pytest.mark.weekly  # test_oci_contents_real.py compares images of both engines path by path.
@pytest.mark.usefixtures("unaudited")
def test_both_engines_find_the_same_in_what_is_smuggled(
    smuggled: Path, buildmatrix: Buildmatrix, tmp_path: Path
) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the wheels of this matrix are for amd64")
    other = tmp_path / "oci"
    shutil.copytree(smuggled, other, ignore=shutil.ignore_patterns(".buildmatrix"))
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    reports = []
    for engine, folder, env in (("docker", smuggled, {}), ("oci", other, nowhere)):
        selection = [part for target in SCANNED for part in ("--select", target)]
        arguments = ("--no-audit", "--engine", engine, "--format", "json")
        run = buildmatrix(folder, "build", *selection, *arguments, env=env, timeout=1800)
        assert run.code == 1, run.err
        reports.append(run.report())
    for part in ("findings", "distributions", "unread"):
        assert reports[0][part] == reports[1][part], part
    states = [[target["gates"] for target in report["targets"]] for report in reports]
    assert states[0] == states[1]


def test_the_table_shows_a_reader_what_to_do(smuggled: Path, buildmatrix: Buildmatrix) -> None:
    run = buildmatrix(smuggled, "build", "--select", "cpu-py311-xgboost")

    assert run.code == 1
    assert "nvidia-nccl-cu12" in run.out
    assert "xgboost.in:2" in run.out
    assert "xgboost-cpu" in run.out
