"""A folder with requirement files, and short specifications in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

HEAD = """\
[project]
name = "inferno"
version = "1.4.0"
"""

#: Four targets: cuda 12.8 and 13.0, cpu on two platforms.
SMALL = (
    HEAD
    + """\
[defaults]
python = ["3.12"]
variant = ["server"]
requirements = ["base.in"]
[backend.cuda]
runtime."12.8" = { full = "12.8.1", torch = "cu128" }
runtime."13.0" = { full = "13.0.2", torch = "cu130" }
base = "nvidia/cuda:{runtime.full}-base-ubuntu22.04"
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
platforms = ["linux/amd64", "linux/arm64"]
"""
)

Load = Callable[[str], Spec]
Refuse = Callable[[str], tuple[Problem, ...]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "base.in").write_text("numpy\n")
    (tmp_path / "cuda.in").write_text("cuda-bindings\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "inferno"\n')
    return tmp_path


@pytest.fixture
def load(project: Path) -> Load:
    def load(text: str) -> Spec:
        path = project / "buildmatrix.toml"
        path.write_text(text, encoding="utf-8")
        return load_spec(path, backends=("cuda", "rocm", "oneapi", "cpu"))

    return load


@pytest.fixture
def refuse(load: Load) -> Refuse:
    def refuse(text: str) -> tuple[Problem, ...]:
        with pytest.raises(SpecError) as caught:
            load(text)
        return caught.value.problems

    return refuse


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def head() -> str:
    return HEAD
