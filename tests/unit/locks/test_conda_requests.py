"""Lines of manifests that ask for packages of conda, and locks that are older than these."""

from __future__ import annotations

from pathlib import Path

import pytest
from conda_locks import PYTHON, conda_lock, package, pixi, wheel

from buildmatrix.base.data import replace
from buildmatrix.locks.condalock import read_conda_lock
from buildmatrix.locks.model import Lock, Staleness
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import bare_target

MANIFEST = """\
[workspace]
channels = ["conda-forge"]
platforms = ["linux-64", "linux-aarch64"]

[dependencies]
python = "3.12.*"

[pypi-dependencies]
Demo = "*"

[target.linux-64.dependencies]
mkl = "*"

[target.osx.dependencies]
only-osx = "*"

[feature.cuda.dependencies]
pytorch = { version = "*", build = "cuda*" }

[feature.cuda.target.unix.dependencies]
"cuda-version" = "12.9.*"

[feature.docs.dependencies]
sphinx = "*"

[environments]
cuda = ["cuda"]
bare = { features = ["cuda"], no-default-feature = true }
"""
PACKAGES = [
    package(PYTHON),
    package("mkl-2025.3.0-h0_463"),
    package("pytorch-2.8.0-cuda129_0", "cuda-version >=12.9,<13"),
    package("cuda-version-12.9-h4f385c5_3"),
    wheel("demo", "1.0", "https://files.pythonhosted.org/packages/aa/demo-1.0-py3-none-any.whl"),
]
ENVIRONMENTS = {"default": [0, 1, 4], "cuda": range(5), "bare": [2, 3]}


def read(
    folder: Path, text: str, *environment: str, name: str = "pixi.lock"
) -> tuple[Lock, Staleness | None]:
    (folder / name).write_text(text)
    target = replace(bare_target("cpu", "cpu", "any"), python="3.12")
    return read_conda_lock(LockSelection(folder / name, name, target, frozenset(environment)))


def lines(lock: Lock) -> dict[str, tuple[str, ...]]:
    return {item.name: item.via for item in (*lock.conda, *lock.packages)}


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(start))


@pytest.mark.parametrize("manifest", ["pixi.toml", "pyproject.toml"])
def test_packages_have_the_lines_of_the_features_of_their_environment(
    tmp_path: Path, manifest: str
) -> None:
    text = MANIFEST
    if manifest == "pyproject.toml":
        text = text.replace("\n[", "\n[tool.pixi.").replace("[workspace]", "[tool.pixi.workspace]")
    (tmp_path / manifest).write_text(text)
    lock, stale = read(tmp_path, pixi(PACKAGES, ENVIRONMENTS), "cuda")
    assert lines(lock) == {
        "conda:python": (f"{manifest}:{line_of(text, 'python')}",),
        "conda:mkl": (f"{manifest}:{line_of(text, 'mkl')}",),
        "conda:pytorch": (f"{manifest}:{line_of(text, 'pytorch')}",),
        "conda:cuda-version": (
            "conda:pytorch",
            f"{manifest}:{line_of(text, chr(34) + 'cuda-version')}",
        ),
        "demo": (f"{manifest}:{line_of(text, 'Demo')}",),
    }
    assert stale is None
    bare, _ = read(tmp_path, pixi(PACKAGES, ENVIRONMENTS), "bare")
    assert set(lines(bare)) == {"conda:pytorch", "conda:cuda-version"}


def test_extras_and_groups_of_a_project_are_features(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "acme"\nversion = "1"\ndependencies = ["demo"]\n'
        '[project.optional-dependencies]\ngpu = ["extra"]\n[dependency-groups]\ntest = ["other"]\n'
        '[tool.pixi.environments]\ncuda = ["gpu"]\n'
    )
    address = "https://files.pythonhosted.org/packages/aa"
    names = ("demo", "extra", "other")
    wheels = [wheel(name, "1.0", f"{address}/{name}-1.0-py3-none-any.whl") for name in names]
    lock, _ = read(tmp_path, pixi(wheels, {"cuda": range(3)}), "cuda")
    assert lines(lock) == {
        "demo": ("pyproject.toml:4",),
        "extra": ("pyproject.toml:6",),
        "other": (),
    }


def test_a_lock_without_a_package_of_its_manifest_is_stale(tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text(MANIFEST + 'docs = ["docs"]\n')
    text = pixi(PACKAGES, {**ENVIRONMENTS, "docs": [0, 1, 4]})
    assert read(tmp_path, text)[1] is None
    _, stale = read(tmp_path, text, "docs")
    line = line_of(MANIFEST, "sphinx")
    assert stale == Staleness(f"pixi.toml:{line} asks for sphinx, and pixi.lock has none")


@pytest.mark.parametrize("broken", ["[dependencies", "dependencies = 3", "\0", "environments = []"])
def test_a_manifest_that_cannot_be_read_costs_only_its_lines(tmp_path: Path, broken: str) -> None:
    (tmp_path / "pixi.toml").write_text(broken)
    lock, stale = read(tmp_path, pixi([package(PYTHON)]))
    assert (lines(lock), stale) == ({"conda:python": ()}, None)


def test_a_conda_lock_names_lines_of_its_environment_files(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(
        "dependencies:\n- python=3.12\n- ruamel.yaml\n- pip:\n  - demo>=1\n"
    )
    (tmp_path.parent / "outside.yml").write_text("dependencies:\n- python=3.12\n")
    head = "version: 1\nmetadata:\n  sources:\n  - environment.yml\n  - ../outside.yml\n"
    head += "  - meta.txt\n  - missing.yml\n"
    text = conda_lock(
        {"file": "python-3.12.7-h_0"}, {"file": "ruamel.yaml-0.18.6-py312_1"}, head=head
    )
    lock, stale = read(tmp_path, text, name="conda-lock.yml")
    assert lines(lock) == {
        "conda:python": ("environment.yml:2",),
        "conda:ruamel.yaml": ("environment.yml:3",),
    }
    assert stale is None
