"""Which parts of a lock are looked at where nobody says, and what is said of the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lock_cases import target

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.model import LeftOut, Lock
from buildmatrix.locks.selection import LockSelection
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.resolved import parts_left_out

DATA = Path(__file__).parent / "data"


def lock(path: Path, source: str = "") -> Lock:
    file = parse_declared(f"lock:{path.name}{source}", path.parent)
    parts = file.extras, file.groups, file.without
    return read_committed(LockSelection(path, path.name, target(), *parts))[0].lock


def names(path: Path, source: str = "") -> set[str]:
    return {package.name for package in lock(path, source).packages}


def copied(tool: str, folder: Path, old: str, new: str) -> Path:
    shutil.copytree(DATA / tool, folder / tool)
    project = folder / tool / "pyproject.toml"
    assert old in project.read_text()
    project.write_text(project.read_text().replace(old, new))
    return folder / tool


def test_uv_installs_dev_or_what_the_project_names(tmp_path: Path) -> None:
    assert "iniconfig" in names(DATA / "uv" / "uv.lock")
    assert "iniconfig" not in names(DATA / "uv" / "uv.lock", ":-dev")
    none = copied("uv", tmp_path / "none", "[tool.uv]", "[tool.uv]\ndefault-groups = []")
    assert "iniconfig" not in names(none / "uv.lock")
    assert "iniconfig" in names(none / "uv.lock", ":dev")
    every = copied("uv", tmp_path / "all", "[tool.uv]", '[tool.uv]\ndefault-groups = "all"')
    assert "iniconfig" in names(every / "uv.lock")


def test_poetry_installs_the_groups_that_are_not_optional(tmp_path: Path) -> None:
    old = "[tool.poetry.group.dev.dependencies]"
    new = f"[tool.poetry.group.dev]\noptional = true\n{old}"
    folder = copied("poetry", tmp_path, old, new)
    assert "iniconfig" in names(DATA / "poetry" / "poetry.lock")
    assert "iniconfig" not in names(folder / "poetry.lock")
    assert lock(folder / "poetry.lock").left_out.groups == ("dev",)


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        (
            "uv/uv.lock",
            ":-dev",
            "not audited of uv.lock: extras `new`, `old`; groups `dev`. `uv.lock[new]:dev` looks "
            "at more of it",
        ),
        ("poetry/poetry.lock", "[web]", ""),
        (
            "poetry/poetry.lock",
            "",
            "not audited of poetry.lock: extras `web`. `poetry.lock[web]:dev` looks at more of it",
        ),
    ],
)
def test_what_was_left_out_is_named_with_the_way_to_it(path: str, source: str, said: str) -> None:
    assert parts_left_out(lock(DATA / path, source).left_out, Path(path).name) == said


def test_what_excludes_what_was_asked_for_is_named_and_not_offered() -> None:
    out = lock(DATA / "uv" / "uv.lock", "[old]").left_out
    assert (out.extras, out.more_extras) == (("new",), ("old",))
    said = "not audited of uv.lock: extras `new`. `uv.lock[new]` looks there instead"
    assert parts_left_out(out, "uv.lock") == said


def test_many_extras_are_named_in_part() -> None:
    extras = tuple(f"e{number:02}" for number in range(20))
    said = parts_left_out(LeftOut(extras, (), extras, ()), "uv.lock")
    assert said.endswith("`e07` and 12 more. `uv.lock[e00]` looks at more of it")


def test_a_pipfile_says_which_sections_it_left_out() -> None:
    assert lock(DATA / "pipenv" / "Pipfile.lock").left_out.groups == ("develop",)


def test_extras_that_exclude_each_other_are_refused_as_uv_does() -> None:
    with pytest.raises(SpecError) as caught:
        lock(DATA / "uv" / "uv.lock", "[new,old]")
    said = "the extra `new` and the extra `old` of inferno exclude each other; ask for one of them"
    assert caught.value.message == f"uv.lock: {said}"


PYLOCK = """\
lock-version = "1.0"
extras = ["gpu"]
dependency-groups = ["dev", "docs"]
default-groups = ["dev"]
created-by = "pip"

[[packages]]
name = "iniconfig"
version = "2.0.0"
marker = "'dev' in dependency_groups"
"""


def test_a_pylock_has_its_own_default_groups(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(PYLOCK)
    assert names(path) == {"iniconfig"}
    assert names(path, ":-dev") == set()
    out = lock(path).left_out
    assert (out.extras, out.groups) == (("gpu",), ("docs",))
