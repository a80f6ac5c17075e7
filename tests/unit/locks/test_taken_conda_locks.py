"""Targets whose lock is an environment of conda: its packages are taken with their hashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conda_locks import FORGE, PYTHON, conda_lock, package, pixi, wheel
from lock_cases import CPU, spec_of

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, SpecError
from buildmatrix.base.progress import Silent
from buildmatrix.locks.model import CondaPackage, Lock
from buildmatrix.locks.pylock import read_lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.status import staleness
from buildmatrix.matrix.model import Target

URL = "https://files.pythonhosted.org/packages/aa/demo-1.0-py3-none-any.whl"
PACKAGES = [
    package(PYTHON),
    package("numpy-2.1.0-py312h1103770_0", "python >=3.12"),
    package("pytorch-2.8.0-cuda129_0", "__cuda", "numpy"),
    wheel("demo", "1.0", URL),
]


def taking(name: str = "pixi.lock", **changes: object) -> Target:
    own = f".buildmatrix/locks/pylock.{CPU.id}.toml"
    values = {"requirements": (), "python": "3.12", "lock": own, "committed_lock": name, **changes}
    return replace(CPU, **values)  # type: ignore[arg-type]


def outcome(root: Path, target: Target) -> Lock | BuildmatrixError:
    spec = spec_of(root, target)
    answers = lock_targets(spec, [target], upgrade=False, offline=True, progress=Silent(), jobs=1)
    return answers[target.id]


def refused(root: Path, target: Target) -> str:
    error = outcome(root, target)
    assert isinstance(error, SpecError)
    assert staleness(spec_of(root, target), target) is not None
    (problem,) = error.problems
    return str(problem)


def test_an_environment_is_taken_with_urls_and_hashes(tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text('[feature.gpu.dependencies]\npytorch = "*"\n')
    with (tmp_path / "pixi.toml").open("a") as file:
        file.write('[environments]\ncuda = ["gpu"]\n')
    text = pixi(PACKAGES, {"default": [0, 1], "cuda": range(4)})
    (tmp_path / "pixi.lock").write_text(text)
    target = taking(environment="cuda")
    assert staleness(spec_of(tmp_path, target), target) is None
    lock = outcome(tmp_path, target)
    assert isinstance(lock, Lock)
    assert {item.name: item.version for item in lock.packages} == {"demo": "1.0"}
    by_name = {item.name: item for item in lock.conda}
    assert by_name["conda:pytorch"].via == ("pixi.toml:2",)
    # Of the machine: nothing installs it.
    assert by_name["conda:__cuda"].via == ("conda:pytorch",)
    lines = (tmp_path / target.lock).read_text().splitlines()
    numpy = f"{FORGE}/linux-64/numpy-2.1.0-py312h1103770_0.conda"
    assert f'    "{numpy}#sha256:{"a" * 64}",' in lines
    read = read_lock(tmp_path / target.lock)
    assert [item.name for item in read.conda] == ["conda:python", "conda:numpy", "conda:pytorch"]
    assert {item.name: item.version for item in read.conda}.items() <= {
        item.name: item.version for item in lock.conda
    }.items()
    assert all(isinstance(item, CondaPackage) and item.file for item in read.conda)
    assert read.digest == lock.digest


def test_the_lock_of_a_target_does_not_change_with_other_environments(tmp_path: Path) -> None:
    digests = []
    for environments in ({"default": [0, 1]}, {"cuda": range(4), "default": [0, 1]}):
        (tmp_path / "pixi.lock").write_text(pixi(PACKAGES, environments))
        lock = outcome(tmp_path, taking())
        assert isinstance(lock, Lock)
        digests.append(lock.digest)
    assert digests[0] == digests[1]


def test_categories_of_a_conda_lock_are_groups(tmp_path: Path) -> None:
    text = conda_lock(
        {"file": "python-3.12.7-h_0"},
        {"file": "numpy-2.1.0-py312_0", "category": "gpu"},
        {"file": "pytest-8.3.0-py312_0", "category": "dev"},
    )
    (tmp_path / "conda-lock.yml").write_text(text)
    lock = outcome(tmp_path, taking("conda-lock.yml", groups=("gpu",)))
    assert isinstance(lock, Lock)
    assert [item.name for item in lock.conda] == ["conda:python", "conda:numpy"]
    lock = outcome(tmp_path, taking("conda-lock.yml"))
    assert isinstance(lock, Lock)
    assert [item.name for item in lock.conda] == ["conda:python"]


@pytest.mark.parametrize(
    ("packages", "changes", "why"),
    [
        (PACKAGES, {"environment": "rocm"}, "there is no environment `rocm`"),
        (PACKAGES, {"platform": "linux/arm64"}, "no environment `default` for linux-aarch64"),
        (PACKAGES, {"python": "3.13"}, "is for Python ==3.12.*, and cpu-py311-server has 3.13"),
        (PACKAGES[1:2], {}, "pixi.lock has no python, which every image runs"),
        (
            [PACKAGES[0], package("a-1-0").replace("  sha256", "  md5")],
            {},
            "conda:a 1+0 has no sha256 for a-1-0.conda",
        ),
        (
            [PACKAGES[0], "- conda: ./recipe\n  name: a\n  version: '1'\n"],
            {},
            "conda:a 1 is built from ./recipe, which is not a file with a hash",
        ),
        (
            [PACKAGES[0], package("a-1-0", channel="file:///srv/channel")],
            {},
            "is locked as file:///srv/channel/linux-64/a-1-0.conda, which no channel serves",
        ),
        (
            [PACKAGES[0], package("a-1-0", channel="https://x.example.com/$(id)")],
            {},
            "which no channel serves",
        ),
    ],
)
def test_what_no_image_can_be_built_from_is_refused_in_one_sentence(
    tmp_path: Path, packages: list[str], changes: dict[str, object], why: str
) -> None:
    (tmp_path / "pixi.lock").write_text(pixi(packages))
    assert why in refused(tmp_path, taking(**changes))


def test_a_lock_that_its_manifest_has_outgrown_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "pixi.lock").write_text(pixi(PACKAGES))
    (tmp_path / "pixi.toml").write_text('[dependencies]\nscipy = "*"\n')
    error = outcome(tmp_path, taking())
    assert isinstance(error, BuildmatrixError)
    assert (error.exit_code, "pixi.toml:2 asks for scipy" in error.message) == (1, True)
    assert error.message.endswith("run `pixi lock`")


@pytest.mark.parametrize(
    "line", ["https://x.example.com/a-1-0.conda", "a#sha256:00", f"x.whl#sha256:{'0' * 64}"]
)
def test_an_edited_taken_lock_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(f'lock-version = "1.0"\npackages = []\n[tool.buildmatrix]\nconda = ["{line}"]')
    with pytest.raises(SpecError) as caught:
        read_lock(path)
    assert "which is not a package with its hash" in str(caught.value)
