"""What an image or a tree holds, added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from built_targets import leave_built

from buildmatrix import cli
from buildmatrix.catalogue.load import load
from buildmatrix.commands.inspect import inspect_tree
from buildmatrix.facts.elf.model import DeviceCode, Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory, Layer, Stats
from buildmatrix.reports import inspect
from buildmatrix.reports.inspect import Inspections, Machines
from buildmatrix.sources.state_folder import FOLDER, State

SITE = "usr/lib/python3.11/site-packages"
CORE, CUDART = f"{SITE}/acme/core.so", f"{SITE}/nvidia/lib/libcudart.so.12"


def code(arch: str | None, size: int, kind: str = "sass") -> DeviceCode:
    return DeviceCode("nv-fatbin", kind, arch, 1, size, 64, ".nv_fatbin")


def image() -> Inventory:
    codes = (
        code("sm_80", 3_000_000),
        code("sm_90", 2_000_000),
        code("compute_90", 1_000_000, "ptx"),
    )
    return Inventory(
        distributions=(
            Distribution("acme", "1.0", f"{SITE}/acme-1.0.dist-info", size=9_000_000),
            Distribution("nvidia-cuda-runtime-cu12", "12.8", f"{SITE}/n.dist-info", size=700_000),
        ),
        binaries=(
            Binary(CORE, 8_000_000, Elf(64, True, "x86_64", "dyn", device_code=codes), "acme==1.0"),
            Binary(
                CUDART,
                700_000,
                Elf(64, True, "x86_64", "dyn", soname="libcudart.so.12"),
                "nvidia-cuda-runtime-cu12==12.8",
            ),
            Binary("usr/lib/libz.so.1", 100_000, Elf(64, True, "x86_64", "dyn")),
        ),
        layers=(
            Layer("sha256:1", "ADD rootfs /", 50_000_000, hidden=1_000_000),
            Layer("sha256:2", "RUN uv pip sync pylock.toml", 10_000_000),
        ),
        origins={CORE: 1, CUDART: 1, "usr/lib/libz.so.1": 0},
        stats=Stats(files=40, binaries=3, bytes_total=60_000_000),
    )


def told(machines: Machines | None = None, width: int = 100) -> str:
    one = inspect_tree("docker:acme:1", image(), load(), machines)
    return inspect.render(Inspections((one,)), width=width, color=False)


def test_bytes_are_told_by_vendor_and_role() -> None:
    assert "nvidia runtime (cuda): 700.0 kB in 1 file" in told()
    assert "nvidia kernel (cuda): 6.0 MB in 1 file; compute_90 sm_80 sm_90" in told()


def test_bytes_are_told_by_distribution_with_their_backends() -> None:
    lines = [line.strip() for line in told().splitlines()]
    start = lines.index("by distribution")
    assert lines[start + 1 : start + 4] == [
        "acme 1.0  9.0 MB (cuda 6.0 MB)",
        "nvidia-cuda-runtime-cu12 12.8  700.0 kB (cuda 700.0 kB)",
        "owned by no distribution  100.0 kB",
    ]


def test_bytes_are_told_by_layer_with_the_instruction() -> None:
    assert "1  50.0 MB, 1.0 MB of it hidden by later layers: ADD rootfs /" in told()
    assert "2  10.0 MB (cuda 6.7 MB): RUN uv pip sync pylock.toml" in told()


def test_each_architecture_is_told_with_what_it_costs() -> None:
    text = told()
    assert "cuda sm_80 sass  3.0 MB in 1 file" in text
    assert "not usable" not in text


def test_code_that_no_machine_of_the_target_runs_is_called_that() -> None:
    text = told(Machines("cuda12.8-py311 (h100: sm_90)", "cuda", ("sm_90",)))
    assert "device code by architecture, for cuda12.8-py311 (h100: sm_90)" in text
    assert "cuda sm_80 sass  3.0 MB in 1 file: not usable there" in text
    assert "cuda sm_90 sass  2.0 MB in 1 file\n" in text
    assert "compute_90 ptx  1.0 MB in 1 file: compiled by the driver when a program starts" in text
    assert "3.0 MB in all are not usable there" in text


def test_on_another_backend_none_of_it_is_of_use() -> None:
    assert "6.0 MB in all are not usable there" in told(Machines("cpu-py311", "cpu", ()))


def test_no_line_is_wider_than_the_terminal() -> None:
    assert max(map(len, told(width=60).splitlines())) <= 60


# The command


SPEC = """\
schema = 1
[project]
name = "inferno"
version = "1.4.0"
[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["base.in"]
[backend.cuda]
runtime."12.8" = { full = "12.8.1" }
base = "nvidia/cuda:{runtime.full}-base-ubuntu22.04"
[node-class.h100]
backend = "cuda"
driver = ">=570"
archs = ["sm_90"]
runs = ["cuda*"]
"""
TARGET = "cuda12.8-py311-server"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "base.in").write_text("acme\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    leave_built(State(tmp_path / FOLDER).target_files(TARGET), image())
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_a_target_is_held_against_its_node_classes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in ((), ("--select", TARGET)):
        code, out, _ = run(capsys, "inspect", f"target:{TARGET}", *asked)
        assert code == 0
        assert f"for {TARGET} (h100: sm_90)" in out
        assert "3.0 MB in all are not usable there" in out


def test_json_has_what_the_table_has(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "inspect", f"target:{TARGET}", "--format", "json")
    (file,) = json.loads(out)["files"]
    contents = file["contents"]
    assert contents["architectures"][0]["arch"] == "sm_80"
    assert contents["layers"][1]["backends"] == {"cuda": 6_700_000}


def test_a_tree_is_drawn(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "inspect", f"target:{TARGET}", "--format", "mermaid")
    assert "nvidia-cuda-runtime-cu12 12.8" in out
    code, _, err = run(capsys, "inspect", f"target:{TARGET}", TARGET, "--format", "dot")
    assert (code, "name only one" in err) == (2, True)
    code, _, err = run(capsys, "inspect", f"target:{TARGET}", "--graph")
    assert (code, "--graph draws" in err) == (2, True)


def test_a_target_without_gpus_cannot_be_held_against_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "buildmatrix.toml").write_text(SPEC.partition("[node-class")[0])
    code, out, _ = run(capsys, "inspect", f"target:{TARGET}")
    assert (code, "not usable" in out) == (0, False)
    code, _, err = run(capsys, "inspect", f"target:{TARGET}", "--select", TARGET)
    assert (code, "nothing says which GPUs" in err) == (2, True)
