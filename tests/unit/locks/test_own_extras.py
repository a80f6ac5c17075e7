"""Extras that name their own project: `all = ["acme[docs]"]`."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_cases import spec_of, target

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.projects import expand, read_project
from buildmatrix.locks.requirement_files import add_file, check
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.target_requirements import add_project, read_target_requirements

# As in `unstructured` (nested) and `sglang` (one extra per backend).
PROJECT = """\
[project]
name = "Inferno_Engine"
version = "1"
requires-python = ">=3.11"
dependencies = ["six"]

[project.optional-dependencies]
common = ["transformers==4.55.2", "h11>=0.16 ; python_version < '3.13'"]
srt = ["inferno-engine[common]", "sgl-kernel==0.3.7"]
srt_hip = ["inferno.engine[common]", "petit-kernel==0.0.2"]
all = ["inferno_engine[srt]", "Inferno-Engine[all]"]
all_hip = ["inferno-engine[srt-hip] ; sys_platform == 'linux'"]

[dependency-groups]
dev = ["inferno-engine[common]", "pytest"]
"""


def write(folder: Path, text: str = PROJECT) -> Path:
    path = folder / "pyproject.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def wanted(folder: Path, *extras: str, groups: tuple[str, ...] = ()) -> RequirementSet:
    found = RequirementSet()
    path = write(folder)
    add_project(
        found, LockSelection(path, "pyproject.toml", target(), frozenset(extras), frozenset(groups))
    )
    check(found)
    return found


def asked(found: RequirementSet) -> dict[str, str]:
    return {str(line.requirement): str(line) for line in found.lines}


def test_nested_extras_expand_in_the_project_and_keep_their_own_lines(tmp_path: Path) -> None:
    assert asked(wanted(tmp_path, "all")) == {
        "six": "pyproject.toml:5",
        "sgl-kernel==0.3.7": "pyproject.toml:9",
        "transformers==4.55.2": "pyproject.toml:8",
        'h11>=0.16; python_version < "3.13"': "pyproject.toml:8",
    }


def test_a_marker_on_an_own_extra_holds_for_what_it_brings(tmp_path: Path) -> None:
    linux = 'sys_platform == "linux"'
    assert {*asked(wanted(tmp_path, "all-hip"))} == {
        "six",
        f"petit-kernel==0.0.2; {linux}",
        f"transformers==4.55.2; {linux}",
        f'h11>=0.16; {linux} and python_version < "3.13"',
    }


def test_groups_ask_for_own_extras_too(tmp_path: Path) -> None:
    found = wanted(tmp_path, groups=("dev",))
    assert {"transformers==4.55.2", "pytest", "six"} <= {*asked(found)}
    assert found.left_out.extras == ("all", "all-hip", "srt", "srt-hip")


def test_a_folder_and_a_line_with_its_name_are_one_project(tmp_path: Path) -> None:
    write(tmp_path / "svc")
    file = tmp_path / "requirements.in"
    file.write_text("inferno-engine[srt-hip] ; python_version > '3'\nnumpy\n-e ./svc[common]\n")
    found = RequirementSet()
    add_file(found, file, "requirements.in")
    check(found)
    assert [one.name for one in found.unbuilt] == ["inferno-engine"]
    assert {line.name for line in found.lines} == {
        "numpy", "six", "transformers", "h11", "petit-kernel",
    }  # fmt: skip
    assert "svc/pyproject.toml:10" in {str(line) for line in found.lines}


def test_a_lock_of_a_target_knows_the_lines_behind_own_extras(tmp_path: Path) -> None:
    write(tmp_path)
    mine = target(requirements=(), pyproject="pyproject.toml", extras=("all",))
    found = read_target_requirements(spec_of(tmp_path, mine).root, mine)
    assert {line.name: line.line for line in found.lines} == {
        "six": 5, "transformers": 8, "h11": 8, "sgl-kernel": 9,
    }  # fmt: skip


def test_extras_without_end_are_a_problem_and_no_endless_run(tmp_path: Path) -> None:
    extras = "".join(
        f"e{n} = [\"inferno-engine[e{(n + 1) % 60}] ; python_version != '3.{n}'\", "
        f"\"inferno-engine[e{(n * 7 + 3) % 60}] ; python_version != '4.{n}'\"]\n"
        for n in range(60)
    )
    path = write(
        tmp_path,
        PROJECT.split("\n[project.opt")[0] + f"\n[project.optional-dependencies]\n{extras}",
    )
    with pytest.raises(SpecError, match="its extras ask for one another in too many ways"):
        expand(read_project(path, "pyproject.toml"), {"e0"})


#: What two releases of uv write for the same project: what it says, and what that comes to.
SAID = """
    { name = "inferno-engine", extras = ["common"], marker = "extra == 'srt'" },
    { name = "sgl-kernel", marker = "extra == 'srt'", specifier = "==0.3.7" },
"""
FLAT = """
    { name = "h11", marker = "python_version < '3.13' and extra == 'srt'", specifier = ">=0.16" },
    { name = "transformers", marker = "extra == 'srt'", specifier = "==4.55.2" },
    { name = "sgl-kernel", marker = "extra == 'srt'", specifier = "==0.3.7" },
"""
LOCK = """\
version = 1
requires-python = ">=3.11"

[[package]]
name = "h11"
version = "0.16.0"
source = {{ registry = "https://pypi.org/simple" }}

[[package]]
name = "inferno-engine"
version = "1"
source = {{ virtual = "." }}

[package.optional-dependencies]
common = [{{ name = "h11", marker = "python_full_version < '3.13'" }}]
srt = [{{ name = "h11" }}]

[package.dev-dependencies]
dev = [{{ name = "inferno-engine", extra = ["common"] }}]

[package.metadata]
requires-dist = [
    {{ name = "six" }},
    {{ name = "h11", marker = "extra == 'common'", specifier = ">=0.16" }},
    {{ name = "transformers", marker = "extra == 'common'", specifier = "==4.55.2" }},
{}]

[package.metadata.requires-dev]
dev = [{{ name = "inferno-engine", extras = ["common"] }}, {{ name = "pytest" }}]
"""


@pytest.mark.parametrize("requires", [SAID, FLAT])
def test_an_intact_uv_lock_is_fresh_however_uv_wrote_the_extras(
    tmp_path: Path, requires: str
) -> None:
    drop = ("srt_hip", "all", "all_hip")
    lines = PROJECT.split("\n")
    write(tmp_path, "\n".join(line for line in lines if not line.startswith(drop)))
    lock = tmp_path / "uv.lock"
    lock.write_text(LOCK.format(requires))
    pins, stale = read_committed(LockSelection(lock, "uv.lock", target()))
    assert stale is None
    # The group of the project brings its extra, by the line of that extra.
    assert {one.name: one.via for one in pins.lock.packages} == {"h11": ("pyproject.toml:8",)}
    lock.write_text(LOCK.format(requires.replace("0.3.7", "0.3.6")))
    stale = read_committed(LockSelection(lock, "uv.lock", target()))[1]
    assert stale is not None
    assert "asks for sgl-kernel==0.3.7 in `srt`" in str(stale)
