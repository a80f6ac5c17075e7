"""Two distributions of which one has a file where the other has a folder: uv and pip end there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import uv
from oci_world import World, make_world, origins, write_lock
from test_oci_contents import build
from wheel_cases import make_wheel

from buildmatrix.base.errors import UndecidedError

FILE = {"shared": b"a file"}
FOLDER = {"shared/module.py": b"x = 1\n"}
SHARED = "/opt/venv/lib/python3.11/site-packages/shared"


def with_wheels(place: Path, file: str, folder: str) -> World:
    world = make_world(place)
    make_wheel(world.root / "wheels", file, FILE)
    make_wheel(world.root / "wheels", folder, FOLDER)
    write_lock(world.root)
    return world


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("heavya", "heavyb"),
        ("heavyb", "heavya"),
        ("heavya", "light"),
        ("light", "heavya"),
        ("lighta", "lightb"),
        ("lightb", "lighta"),
    ],
)
def test_both_are_named_wherever_their_layers_lie(tmp_path: Path, file: str, folder: str) -> None:
    world = with_wheels(tmp_path, file, folder)
    named = f"{file} 1.0 installs a file {SHARED}, and {folder} 1.0 a file in a folder"
    for _ in range(2):  # their layers are known the second time
        with pytest.raises(UndecidedError, match=named):
            build(world)


def test_an_empty_folder_counts_as_well(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    make_wheel(world.root / "wheels", "heavya", FILE)
    make_wheel(world.root / "wheels", "heavyb", {}, folders=["shared"])
    write_lock(world.root)
    with pytest.raises(UndecidedError, match=r"heavya 1\.0 installs a file"):
        build(world)


def test_a_folder_that_both_have_is_no_trouble(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    make_wheel(world.root / "wheels", "heavya", {"shared/a.py": b"", "shared/both.py": b"1"})
    make_wheel(world.root / "wheels", "heavyb", {"shared/b.py": b"", "shared/both.py": b"2"})
    write_lock(world.root)
    image = build(world)
    assert [name for name in origins(image) if name] == ["heavy 1.0", "heavya 1.0", "heavyb 1.0"]


def test_a_layer_whose_paths_were_lost_is_made_again(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    image = build(world)
    kept = tmp_path / "store" / "cache" / "image-layers"
    lost = [entry for entry in kept.iterdir() if b"heavy/lib0.so" in entry.read_bytes()]
    assert len(lost) == 1
    lost[0].unlink()
    assert build(world).descriptor == image.descriptor


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_uv_ends_there_in_either_order(tmp_path: Path, order: tuple[str, str]) -> None:
    make_wheel(tmp_path, "a", FILE)
    make_wheel(tmp_path, "b", FOLDER)
    environment = tmp_path / "environment"
    command = [uv.find_uv_bin(), "--quiet", "--no-config", "--offline"]
    subprocess.run([*command, "venv", "--python", sys.executable, environment], check=True)
    install = [*command, "pip", "install", "--no-index", f"--find-links={tmp_path}"]
    ends = [
        subprocess.run(
            [*install, "--python", environment / "bin/python", name], capture_output=True
        ).returncode
        for name in order
    ]
    assert ends[0] == 0 and ends[1] != 0
