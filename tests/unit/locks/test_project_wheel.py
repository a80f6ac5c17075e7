"""`install-project`: the wheel of the project itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_cases import CPU

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildError, SpecError
from buildmatrix.locks.status import ProjectWheels, project_packages
from buildmatrix.locks.taken import own_projects, trouble_with
from buildmatrix.matrix.load import load_spec

TARGET = replace(CPU, pyproject="app/pyproject.toml", install_project=True)
PROJECT = """\
[project]
name = "acme"
version = "1.0"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
#: A build backend in the project: the time stamps of its wheel are those that it is told.
BACKEND = """\
import os, time, zipfile
def build_wheel(folder, *_):
    stamp = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(f"{folder}/NAME", "w") as archive:
        for path, text in {
            "acme.py": open("acme.py").read(),
            "acme-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: acme\\nVersion: 1.0\\n",
            "acme-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
            "acme-1.0.dist-info/RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(path, stamp), text)
    return "NAME"
"""


def project(root: Path, backend: str = BACKEND, name: str = "acme-1.0-py3-none-any.whl") -> None:
    (root / "app").mkdir(exist_ok=True)
    for file, text in {
        "pyproject.toml": PROJECT,
        "acme.py": "x = 1\n",
        "backend.py": backend.replace("NAME", name),
    }.items():
        (root / "app" / file).write_text(text)


def test_the_same_sources_make_the_same_wheel_and_others_replace_it(tmp_path: Path) -> None:
    project(tmp_path)
    folder = tmp_path / TARGET.wheel_folder
    folder.mkdir(parents=True)
    (folder / "acme-0.9-py3-none-any.whl").write_bytes(b"")
    digests = []
    for text in ("x = 1\n", "x = 1\n", "x = 2\n"):
        (tmp_path / "app/acme.py").write_text(text)
        assert ProjectWheels(tmp_path, offline=True).provide(TARGET) is None
        assert [path.name for path in folder.iterdir()] == ["acme-1.0-py3-none-any.whl"]
        (package,) = project_packages(tmp_path, TARGET)
        assert (package.name, package.version) == ("acme", "1.0")
        digests.append(package.wheels[0].sha256)
    assert digests[0] == digests[1] != digests[2]
    # Neither the sources nor Git see anything of it.
    assert not list((tmp_path / "app").glob("*.egg-info")) + list((tmp_path / "app").glob("dist"))


@pytest.mark.parametrize(
    ("backend", "name", "said"),
    [
        (
            BACKEND,
            "acme-1.0-cp311-cp311-linux_x86_64.whl",
            "its wheel acme-1.0-cp311-cp311-linux_x86_64.whl is for this machine alone; build "
            "wheels for the images, put them on an index, and lock the project from there",
        ),
        ("raise SystemExit('no \\x1b[31mcompiler')\n", "", "\nno compiler\nerror: "),
    ],
)
def test_a_project_without_a_wheel_for_every_image_is_refused(
    tmp_path: Path, backend: str, name: str, said: str
) -> None:
    project(tmp_path, backend, name)
    error = ProjectWheels(tmp_path, offline=True).provide(TARGET)
    assert isinstance(error, BuildError)
    assert error.message.startswith("cpu-py311-server: app/pyproject.toml: ")
    assert said in error.message
    with pytest.raises(BuildError, match=r"server has no wheel of app/pyproject\.toml"):
        project_packages(tmp_path, TARGET)


WORKSPACE = """\
version = 1
requires-python = ">=3.11"
[[package]]
name = "acme"
version = "1.0"
source = { editable = "." }
dependencies = [{ name = "PLACE" }]
[[package]]
name = "PLACE"
version = "1.0"
source = { editable = "FOLDER" }
"""


@pytest.mark.parametrize(
    ("folder", "built"),
    [
        ("packages/engine", (".", "packages/engine")),
        ("packages/gone", (".",)),
        ("../outside", (".",)),
        ("packages/linked", (".",)),
        ("packages/engine/acme.py", (".",)),
        ("x" * 5000, (".",)),
    ],
)
def test_members_of_a_workspace_are_built_and_other_folders_are_not(
    folder: str, built: tuple[str, ...], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    for place in ("root", "root/packages/engine", "outside"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        text = PROJECT.replace("acme", Path(place).name)
        (tmp_path / place / "pyproject.toml").write_text(text)
        (tmp_path / place / "acme.py").write_text("")
        backend = BACKEND.replace("acme", Path(place).name).replace(
            "NAME", f"{Path(place).name}-1.0-py3-none-any.whl"
        )
        (tmp_path / place / "backend.py").write_text(
            backend.replace(f"{Path(place).name}.py", "acme.py")
        )
    (root / "packages/linked").symlink_to(tmp_path / "outside")
    (root / "uv.lock").write_text(WORKSPACE.replace("FOLDER", folder).replace("PLACE", "engine"))
    target = replace(TARGET, pyproject="pyproject.toml", committed_lock="uv.lock")
    assert own_projects(root, target) == built
    why = trouble_with(root, target, allow_stale=True)
    if len(built) == 1:
        assert why is not None
        assert f"is locked as {folder}, which is no folder below that of buildmatrix.toml" in why
        why = trouble_with(root, replace(target, install_project=False), allow_stale=True)
        assert why is not None
        assert f"engine 1.0 is locked as {folder}, which only `install-project` builds" in why
        return
    assert why is None
    assert ProjectWheels(root, offline=True).provide(target) is None
    assert [package.name for package in project_packages(root, target)] == ["engine", "root"]


def test_a_specification_says_which_project(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "requirements.in").write_text("numpy\n")
    path = tmp_path / "buildmatrix.toml"
    text = (
        '[project]\nname = "acme"\nversion = "1"\n[defaults]\npython = "3.11"\n'
        'base = "python:3.11-slim"\nrequirements = ["requirements.in"]\ninstall-project = true\n'
        '%s[backend.cpu]\nruntime = "any"\n'
    )
    path.write_text(text % 'pyproject = "app/pyproject.toml"\n')
    (target,) = load_spec(path, backends=("cpu",)).targets
    assert (target.install_project, target.wheel_folder) == (
        True,
        f".buildmatrix/project/{target.id}",
    )
    path.write_text(text % "")
    with pytest.raises(SpecError, match=r"`install-project` of .* needs a `pyproject` to install"):
        load_spec(path, backends=("cpu",))
