"""Locks of conda and pixi: what they say, and what no installer would agree with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conda_locks import FORGE, PYTHON, conda_lock, package, pixi, wheel
from rattler import LockFile

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.locks.condalock import LARGEST_LOCK, read_conda_lock
from buildmatrix.locks.model import CondaPackage, Lock
from buildmatrix.locks.selection import LockSelection
from buildmatrix.matrix.model import bare_target, is_conda_lock

URL = "https://files.pythonhosted.org/packages/aa/demo-1.0-py3-none-any.whl"


def read(
    folder: Path,
    text: str,
    *environment: str,
    name: str = "pixi.lock",
    platform: str = "linux/amd64",
    backend: str = "cpu",
    **selected: frozenset[str],
) -> Lock:
    (folder / name).write_text(text)
    target = replace(bare_target(backend, backend, "any"), python="3.12", platform=platform)
    selection = LockSelection(folder / name, name, target, frozenset(environment), **selected)
    return read_conda_lock(selection)[0]


def refused(folder: Path, text: str, *environment: str, name: str = "pixi.lock") -> str:
    with pytest.raises(SpecError) as caught:
        read(folder, text, *environment, name=name)
    (one,) = caught.value.problems
    return str(one)


def locked(lock: Lock) -> dict[str, str]:
    return {item.name: item.version for item in lock.conda}


def test_a_lock_of_pixi_has_packages_with_their_builds_lines_and_askers(tmp_path: Path) -> None:
    text = pixi(
        [
            package("pytorch-2.5.1-cuda126_py312_0", "__cuda", "numpy >=1.23,<3", "mkl >=2024"),
            package("numpy-2.1.0-py312h1103770_0"),
            wheel("Demo", "1.0", URL),
        ]
    )
    lock = read(tmp_path, text)
    pytorch, numpy, cuda, mkl = lock.conda
    assert (pytorch.name, pytorch.version) == ("conda:pytorch", "2.5.1+cuda126_py312_0")
    assert pytorch.index == "conda.anaconda.org/conda-forge"
    assert isinstance(pytorch, CondaPackage)
    assert pytorch.file is not None
    assert (pytorch.file.size, pytorch.file.sha256) == (1000, "a" * 64)
    assert numpy.via == ("conda:pytorch",)
    line = 1 + text.splitlines().index(
        f"- conda: {FORGE}/linux-64/numpy-2.1.0-py312h1103770_0.conda"
    )
    assert numpy.place == f"pixi.lock:{line}"
    # What is required and not in the lock: of the machine, or forgotten.
    assert [(item.name, item.version, item.via) for item in (cuda, mkl)] == [
        ("conda:__cuda", "any", ("conda:pytorch",)),
        ("conda:mkl", "2024", ("conda:pytorch",)),
    ]
    (demo,) = lock.packages
    assert (demo.name, demo.version, demo.wheels[0].url) == ("demo", "1.0", URL)


@pytest.mark.parametrize("version", ["4", "5"])
def test_earlier_versions_have_a_kind_and_a_url(tmp_path: Path, version: str) -> None:
    text = pixi(
        [package("numpy-2.1.0-py312_0", "python"), package(PYTHON), wheel("demo", "1.0", URL)]
    )
    text = text.replace("version: 6", f"version: {version}", 1)
    head, _, packages = text.partition("\npackages:")
    packages = packages.replace("- conda:", "- kind: conda\n  name: x\n  url:")
    packages = packages.replace("name: x", "name: numpy", 1).replace("name: x", "name: python")
    packages = packages.replace("- pypi:", "- kind: pypi\n  url:")
    lock = read(tmp_path, f"{head}\npackages:{packages}")
    assert locked(lock) == {
        "conda:numpy": "2.1.0+py312_0",
        "conda:python": "3.12.7+hc5c86c4_0_cpython",
    }
    assert [item.name for item in lock.packages] == ["demo"]


#: As pixi 0.67 writes it: platforms have names, and packages that are built have hashes.
SEVENTH = f"""\
version: 7
platforms:
- name: linux-64
  virtual-packages:
  - __glibc=2.28
- name: gpu
  subdir: linux-64
  virtual-packages:
  - __cuda=12.9
- name: osx-arm64
environments:
  default:
    channels:
    - url: {FORGE}/
    packages:
      gpu:
      - conda: {FORGE}/linux-64/a-1-0.conda
      - conda: {FORGE}/linux-64/b-1-cuda12_0.conda
      linux-64:
      - conda: {FORGE}/linux-64/a-1-0.conda
      - conda_source: tool[758e66f8] @ ./tool
      - pypi: {URL}
  test:
    channels:
    - url: {FORGE}/
    packages:
      gpu:
      - conda: {FORGE}/linux-64/b-1-cuda12_0.conda
      osx-arm64:
      - conda: {FORGE}/linux-64/a-1-0.conda
packages:
- conda: {FORGE}/linux-64/a-1-0.conda
  sha256: {"a" * 64}
- conda: {FORGE}/linux-64/b-1-cuda12_0.conda
  sha256: {"b" * 64}
- conda_source: tool[758e66f8] @ ./tool
  depends:
  - a >=1
- pypi: {URL}
  name: demo
  version: '1.0'
  sha256: {"c" * 64}
"""


@pytest.mark.parametrize(
    ("environment", "backend", "platform"),
    [
        ("default", "cpu", "linux-64"),
        ("default", "cuda", "gpu"),
        ("test", "cpu", "gpu"),
        ("test", "cuda", "gpu"),
    ],
)
def test_the_seventh_version_has_what_rattler_reads(
    tmp_path: Path, environment: str, backend: str, platform: str
) -> None:
    lock = read(tmp_path, SEVENTH, environment, backend=backend)
    theirs = LockFile.from_path(tmp_path / "pixi.lock").environment(environment)
    assert theirs is not None
    (found,) = (item for item in theirs.platforms() if str(item.name) == platform)
    assert {item.source or item.file.url for item in lock.conda if item.file} | {
        item.wheels[0].url for item in lock.packages
    } == {item.location for item in theirs.packages(found) or ()}
    if platform == "linux-64":
        assert locked(lock) == {"conda:a": "1+0", "conda:tool": ""}
        assert [item.why for item in lock.unread] == ["tool is built from ./tool, which is no file"]


def test_platforms_that_fit_alike_are_refused(tmp_path: Path) -> None:
    text = SEVENTH.replace("- __glibc=2.28", "- __cuda=13")
    assert locked(read(tmp_path, text, "test")) == {"conda:b": "1+cuda12_0"}
    assert "has several platforms of that kind: linux-64, gpu" in refused(tmp_path, text)
    text = SEVENTH.replace("subdir: linux-64", "subdir: win-64")
    assert "there is no environment `test` for linux-64" in refused(tmp_path, text, "test")


def test_each_environment_is_installed_alone(tmp_path: Path) -> None:
    packages = [package("a-1-0"), package("b-1-0"), package("c-1-0")]
    text = pixi(packages, {"default": [0], "Cuda_12": [0, 1], "docs": [2]})
    assert locked(read(tmp_path, text)) == {"conda:a": "1+0"}
    lock = read(tmp_path, text, "cuda-12")
    assert locked(lock) == {"conda:a": "1+0", "conda:b": "1+0"}
    assert lock.left_out.environments == ("default", "docs")
    assert "there is no environment `rocm`; environments here: Cuda_12, default" in refused(
        tmp_path, text, "rocm"
    )
    assert "name one environment" in refused(tmp_path, text, "docs", "default")
    text = pixi(packages, {"docs": [2], "test": [1]})
    assert "there is no environment `default`" in refused(tmp_path, text)
    assert locked(read(tmp_path, pixi(packages, {"docs": [2]}))) == {"conda:c": "1+0"}


def test_a_lock_without_the_platform_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    text = pixi([package("a-1-0")])
    with pytest.raises(SpecError, match="`default` for linux-aarch64; it is for linux-64"):
        read(tmp_path, text, platform="linux/arm64")


def test_the_python_of_the_lock_is_that_of_the_target(tmp_path: Path) -> None:
    assert read(tmp_path, pixi([package(PYTHON)]))
    said = refused(tmp_path, pixi([package("python-3.13.1-h_0")]))
    assert "environment `default` for linux-64 is for Python ==3.13.*" in said


def test_categories_of_conda_lock(tmp_path: Path) -> None:
    text = conda_lock(
        {"file": "numpy-2.1.0-py312_0", "depends": "python >=3.12"},
        {"file": "pytest-8.0-py_0", "category": "dev"},
        {"file": "sphinx-8.0-py_0", "category": "docs"},
        {"file": "other-1-0", "platform": "osx-64"},
        {"name": "demo", "version": "1.0", "manager": "pip", "url": URL},
    )
    name = "gpu.conda-lock.yml"
    lock = read(tmp_path, text, name=name)
    assert locked(lock).keys() == {"conda:numpy", "conda:pytest", "conda:python"}
    assert [item.name for item in lock.packages] == ["demo"]
    assert lock.left_out.groups == ("docs",)
    lock = read(tmp_path, text, name=name, groups=frozenset({"docs", "linux-64"}))
    assert locked(lock).keys() == {"conda:numpy", "conda:pytest", "conda:sphinx", "conda:python"}
    lock = read(tmp_path, text, name=name, without=frozenset({"dev"}))
    assert locked(lock).keys() == {"conda:numpy", "conda:python"}
    assert "has no environments" in refused(tmp_path, text, "cuda", name=name)


@pytest.mark.parametrize(
    "name", ["pixi.lock", "env/pixi.lock", "conda-lock.yml", "a.conda-lock.yaml"]
)
def test_names_of_locks(name: str) -> None:
    assert is_conda_lock(name)
    assert not is_conda_lock(f"{name}.orig")


def test_sources_of_builds_are_unread(tmp_path: Path) -> None:
    text = pixi(["- conda: ./tool\n  name: tool\n  version: 0.1\n"])
    lock = read(tmp_path, text)
    assert locked(lock) == {"conda:tool": "0.1"}
    (unread,) = lock.unread
    assert "tool is built from ./tool" in unread.why


def test_credentials_of_channels_do_not_get_into_reports(tmp_path: Path) -> None:
    secret = "https://user:hunter2@conda.example.com/t/tk-123-secret/private"
    (one,) = read(tmp_path, pixi([package("a-1-0", channel=secret)])).conda
    assert one.index == "conda.example.com/private"
    assert isinstance(one, CondaPackage)
    assert one.file is not None
    assert one.file.url == "https://conda.example.com/private/linux-64/a-1-0.conda"


GOOD = package("pytorch-2.5.1-cuda126_0")
LYING = {
    "name": GOOD + "  name: numpy\n",
    "build": GOOD + "  build: cpu_0\n",
    "version": GOOD + "  version: '1'\n",
}


@pytest.mark.parametrize("kind", LYING)
def test_the_file_decides_what_is_installed(tmp_path: Path, kind: str) -> None:
    said = refused(tmp_path, pixi([LYING[kind]]))
    assert said.startswith("pixi.lock:10: its file is ")
    assert "and the lock calls it" in said


def test_the_file_decides_in_a_conda_lock_too(tmp_path: Path) -> None:
    text = conda_lock({"file": "pytorch-2.5.1-cuda126_0", "name": "pytorch-cpu"})
    said = refused(tmp_path, text, name="conda-lock.yml")
    assert "its file is name 'pytorch', and the lock calls it 'pytorch-cpu'" in said


ALIASES = "version: 6\na: &a [x]\nb: [*a, *a]\n"
HEAD = pixi([GOOD]).partition("\npackages:")[0]
ABSENT = pixi([GOOD]).replace("  - conda", "  - conda: x\n      - conda", 1)
TWICE = pixi([GOOD, package("pytorch-2.4-cpu_0")])
HOSTILE: dict[str, tuple[str | Callable[[], str], str]] = {
    "not YAML": ("a: [", "this is no lock"),
    "a list": ("- a\n", "it is not a table"),
    "nothing": ("", "it is not a table"),
    "a later version": ("version: 8\n", "`version` is 8, and only 4, 5, 6, 7 can be read"),
    "no version": ("environments: {}\n", "`version` is None"),
    "aliases": (ALIASES, "pixi.lock:2:4: this is no lock: anchors and aliases"),
    "no environments": ("version: 6\npackages: []\n", "`environments` is not a table"),
    "environments as list": ("version: 6\nenvironments: []\n", "`environments` is not a table"),
    "packages as text": (f"{HEAD}\npackages: x\n", "not a list"),
    "absent package": (ABSENT, "which is not under"),
    "two packages of a file": (pixi([GOOD]) + GOOD, "two packages have the file"),
    "two packages of a name": (TWICE, "two packages `pytorch`"),
    "name with a line": (pixi([package('"evil%0Aname-1-0"')]), ""),
    "name with a space": (pixi([package("a b-1-0")]), "not a valid package"),
    "no place": (pixi([GOOD]) + "- name: x\n", "neither `conda` nor `pypi`"),
    "wrong pypi name": (pixi([wheel("a b", "1", URL)]), "not a valid name"),
    "wrong pypi version": (pixi([wheel("a", "one", URL)]), "must be a version"),
    "too large": (lambda: "#" * (LARGEST_LOCK + 1), "larger than 16 MiB"),
    "a large environment": (
        lambda: pixi(packages(5_001)),
        "linux-64 holds more than 5,000 packages",
    ),
    "too many packages": (
        lambda: pixi(packages(20_001), {"default": [0]}),
        "more than 20000 packages",
    ),
    "deep": ("version: 6\nenvironments: " + "[" * 500, "nests too deeply"),
}


def packages(count: int) -> list[str]:
    return [package(f"p{number}-1-0") for number in range(count)]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_broken_or_hostile_lock_is_refused_in_one_sentence(
    tmp_path: Path, kind: str, no_hang: None
) -> None:
    text, said = HOSTILE[kind]
    refusal = refused(tmp_path, text if isinstance(text, str) else text())
    assert said in refusal
    assert "\n" not in refusal
