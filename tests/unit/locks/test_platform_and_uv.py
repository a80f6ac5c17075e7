"""Which wheels fit, and which uv is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lock_cases import target

from buildmatrix.base.errors import ComponentError, UndecidedError
from buildmatrix.base.text import without_login
from buildmatrix.locks import uv
from buildmatrix.locks.model import Package, Wheel
from buildmatrix.locks.selection import choose_wheel, python_platform, refusal
from buildmatrix.matrix.model import Base


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nvidia/cuda:12.8.1-base-ubuntu22.04", "x86_64-manylinux_2_35"),
        ("rocm/dev-ubuntu-24.04:7.2.4", "x86_64-manylinux_2_39"),
        ("python:3.12-slim-bookworm", "x86_64-manylinux_2_36"),
        ("debian:trixie-slim", "x86_64-manylinux_2_40"),
        ("nvidia/cuda:12.8.1-base-ubi8", "x86_64-manylinux_2_28"),
        ("registry.example.com/our/base:7", "x86_64-manylinux_2_35"),
        ("python:3.12-alpine3.22", "x86_64-unknown-linux-musl"),
        ("docker.io/library/alpine:3.22", "x86_64-unknown-linux-musl"),
        ("registry.example.com/balpine/base:7", "x86_64-manylinux_2_35"),
    ],
)
def test_wheels_are_chosen_for_the_c_library_of_the_final_image(image: str, expected: str) -> None:
    assert python_platform(target(base=Base("ubuntu:20.04", image))) == expected


def test_an_alpine_image_takes_wheels_for_musl_and_says_which_do_not_exist() -> None:
    alpine = target(base=Base("ubuntu:20.04", "python:3.12-alpine"))
    name = "demo-1.0-cp311-cp311-{}_x86_64.whl"
    for tag, fits in [("manylinux_2_17", 0), ("musllinux_1_1", 1), ("musllinux_1_3", 0)]:
        wheel = Wheel(name.format(tag), "https://example.com/x", "")
        package = Package("demo", "1.0", None, (wheel,), False, ())
        assert (choose_wheel(package, alpine) is wheel) == bool(fits)
        why = refusal(package, alpine)
        assert why is None or f"with Python {alpine.python} and musl; the nearest is for" in why


def test_arm_images_get_arm_wheels() -> None:
    assert python_platform(target(platform="linux/arm64")).startswith("aarch64-manylinux")


def test_a_platform_without_wheels_is_said_so() -> None:
    with pytest.raises(UndecidedError, match="platform `linux/riscv64`"):
        python_platform(target(platform="linux/riscv64"))


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is the whole PATH, with no `uv` package to import."""
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    uv._find_uv.cache_clear()
    yield tmp_path
    uv._find_uv.cache_clear()


def test_a_missing_uv_says_what_to_install(only: Path) -> None:
    with pytest.raises(ComponentError, match=r"uv was not found.*pip install uv"):
        uv.find_uv()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo uv 0.4.1", r"is uv 0.4.1, and locking needs 0\.9\.8 or newer"),
        ("echo hello", "does not say which version"),
        ("exit 1", "does not say which version"),
    ],
)
def test_a_uv_that_cannot_be_used_says_what_to_install(only: Path, script: str, said: str) -> None:
    program = only / "uv"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(ComponentError, match=said):
        uv.find_uv()


def test_the_uv_that_came_with_buildmatrix_is_found() -> None:
    uv._find_uv.cache_clear()
    assert uv.find_uv().path.is_file()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at https://robot:p@ss@wheels.example.com/a", "at https://wheels.example.com/a"),
        ("http://token@wheels.example.com", "http://wheels.example.com"),
        ("git+ssh://git@git.example.com/a", "git+ssh://git@git.example.com/a"),
        ("https://wheels.example.com/@scope/a", "https://wheels.example.com/@scope/a"),
    ],
)
def test_credentials_of_addresses_are_never_shown(text: str, expected: str) -> None:
    assert without_login(text) == expected
