"""The wheel alone, in an environment of its own: templates, catalogue and pages travel in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from uv import find_uv_bin

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`buildmatrix` as `pip install` of the wheel leaves it."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = find_uv_bin()
    subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "venv"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, environment], check=True)
    python = environment / "bin/python"
    subprocess.run([uv, "pip", "install", "-q", "--python", python, wheel], check=True)
    return environment / "bin/buildmatrix"


def run(command: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_takes_a_project_from_init_to_dockerfiles(command: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("packaging\n")

    run(command, tmp_path, "init")
    run(command, tmp_path, "lock", "--select", "cpu*")
    run(command, tmp_path, "generate", "--select", "cpu*")

    assert list(tmp_path.glob(".buildmatrix/generated/cpu*/Dockerfile"))
    assert (tmp_path / ".buildmatrix/generated/scan/scan.pyz").is_file()


def test_the_wheel_holds_the_page_of_every_rule(command: Path, tmp_path: Path) -> None:
    codes = [line.split()[0] for line in run(command, tmp_path, "rules").splitlines()]

    assert len(codes) >= 20
    # Thirty commands in one process, which imports once.
    program = """
import sys
from contextlib import suppress
from buildmatrix.cli import main
for code in sys.argv[1:]:
    with suppress(SystemExit):
        main(["rules", code])
"""
    pages = run(command.with_name("python"), tmp_path, "-c", program, *codes).splitlines()
    titles = [line.split(":")[0] for line in pages if line.startswith("# ")]
    assert titles == [f"# {code}" for code in codes]


def test_the_wheel_s_compiled_catalogue_is_what_its_data_files_say(command: Path) -> None:
    program = """
from importlib import resources
from buildmatrix.catalogue import load
from buildmatrix.catalogue.datafile import read

data = resources.files("buildmatrix.catalogue") / "data"
texts = {item.name: item.read_bytes() for item in data.iterdir() if item.name.endswith(".toml")}
assert (resources.files("buildmatrix.catalogue") / "data.msgpack").is_file()
files = load.load().files
assert len(files) > 100 and list(files) == sorted(files)
assert files == {name: read(name, text) for name, text in texts.items()}
"""
    subprocess.run([command.with_name("python"), "-I", "-c", program], check=True)
