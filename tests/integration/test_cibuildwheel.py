"""The audit that cibuildwheel runs, by cibuildwheel itself, on wheels built just now."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cibuildwheel import errors
from cibuildwheel.audit import run_audit
from cibuildwheel.options import CommandLineArguments, Options
from cibuildwheel.util.helpers import prepare_command
from conftest import ROOT
from recipes import blocks

pytestmark = pytest.mark.network

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "demo"
version = "1.0"
[tool.hatch.build.targets.wheel]
packages = ["demo"]
artifacts = ["*.so"]
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    command = ["uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def built(folder: Path, *libraries: str) -> Path:
    """A wheel with one extension, linked against libraries of these names."""
    (folder / "demo").mkdir(parents=True)
    (folder / "demo" / "__init__.py").write_text("from demo import _C\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "empty.c").write_text("int answer(void) { return 42; }\n")
    for name in libraries:
        shared = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", name, "empty.c"]
        subprocess.run(shared, cwd=folder, check=True)
    links = [f"-l:{name}" for name in libraries]
    extension = ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", "demo/_C.so", "empty.c"]
    subprocess.run([*extension, "-L.", *links], cwd=folder, check=True)
    subprocess.run(["uv", "build", "--quiet", "--wheel"], cwd=folder, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def test_a_wheel_is_judged_by_the_command_of_the_page(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    first, second = blocks("cibuildwheel.md", "toml")
    good, bad = built(tmp_path / "good"), built(tmp_path / "bad", "libcudart.so.12")
    (tmp_path / "pyproject.toml").write_text(first)
    arguments = CommandLineArguments.defaults()
    arguments.package_dir = tmp_path
    options = Options("linux", arguments, env={}).build_options("cp313-manylinux_x86_64")
    assert [command.split()[0] for command in options.audit_command] == ["abi3audit", "buildmatrix"]
    run_audit(tmp_dir=tmp_path, build_options=options, wheel=good)
    with pytest.raises(errors.AuditCommandFailedError, match="scan wheel:"):
        run_audit(tmp_dir=tmp_path, build_options=options, wheel=bad)
    assert "BM301" in capfd.readouterr().out

    # The way of before: the command behind the repair, as cibuildwheel's shell runs it.
    (tmp_path / "pyproject.toml").write_text(second)
    old = Options("linux", arguments, env={}).build_options("cp313-manylinux_x86_64")
    _, command = old.repair_command.split(" && ")
    for wheel, code in ((good, 0), (bad, 1)):
        done = subprocess.run(
            ["sh", "-c", prepare_command(command, dest_dir=wheel.parent, wheel="unrepaired")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert ("BM301" in done.stdout) == bool(code)
