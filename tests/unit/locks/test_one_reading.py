"""Requirement inputs are read once: for audits and for locks of images alike, and as others do."""

from __future__ import annotations

from pathlib import Path

import pytest
from lock_cases import CPU
from packaging.dependency_groups import CyclicDependencyGroup, resolve_dependency_groups
from packaging.utils import canonicalize_name
from pip_requirements_parser import RequirementsFile

from buildmatrix.base import toml
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.projects import read_project
from buildmatrix.locks.requirement_files import add_file, read_requirements
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.target_requirements import add_target

PROJECTS = Path(__file__).parents[2] / "projects"
#: Requirements files of public projects.
FILES = sorted(path for path in PROJECTS.rglob("*.txt") if "requirements" in str(path))


def said(line: RequirementLine) -> tuple[str, str, str, frozenset[str], int]:
    requirement = line.requirement
    where = requirement.url or str(requirement.specifier)
    return line.name, where, str(requirement.marker or ""), line.hashes, line.line


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROJECTS)))
def test_real_requirements_files_say_what_the_parser_of_pip_reads(path: Path) -> None:
    parsed = RequirementsFile.from_file(str(path), include_nested=False)
    theirs = {
        (
            canonicalize_name(one.name),
            one.link.url if one.link else str(one.specifier or ""),
            str(one.marker or ""),
            frozenset(text.rpartition(":")[2] for text in one.hash_options or ()),
            one.line_number,
        )
        for one in parsed.requirements
        if one.name
    }
    ours = {
        said(line) for line in read_requirements(path, path.name).lines if line.file == path.name
    }
    assert ours == theirs
    assert ours or parsed.options


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROJECTS)))
def test_an_audit_and_a_lock_for_an_image_read_the_same_lines(path: Path) -> None:
    one, other = RequirementSet(), RequirementSet(for_image=True)
    for wanted in (one, other):
        add_file(wanted, path, path.name)
    assert list(map(said, one.lines)) == list(map(said, other.lines))
    assert one.files == other.files


@pytest.mark.parametrize("project", ["", '[build-system]\nrequires = ["setuptools"]\n'])
def test_an_unnamed_project_beside_a_file_has_a_name_that_can_be_read(
    tmp_path: Path, project: str
) -> None:
    (tmp_path / "requirements.txt").write_text("-e .[dev]\n-e ..\n./\n")
    (tmp_path / "pyproject.toml").write_text(project)
    found = read_requirements(tmp_path / "requirements.txt", "requirements.txt").unbuilt
    assert [one.name for one in found] == ["local-project"] * 3


def groups_of(path: Path) -> dict[str, set[str]]:
    project = read_project(path, path.name)
    assert not project.problems
    found: dict[str, set[str]] = {group: set() for group in project.groups}
    for one in project.requirements:
        if one.part.startswith(":"):
            found[one.part[1:]].add(str(one.parsed))
    return found


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(PROJECTS.rglob("pyproject.toml"))
        if "dependency-groups" in toml.loads(path.read_text())
    ],
    ids=lambda path: path.parent.name,
)
def test_groups_of_real_projects_come_to_what_packaging_makes_of_them(path: Path) -> None:
    table = toml.loads(path.read_text())["dependency-groups"]
    ours = groups_of(path)
    for group in table:
        assert set(resolve_dependency_groups(table, group)) <= ours[canonicalize_name(group)]
    assert {canonicalize_name(group) for group in table} <= {*ours}


def test_a_group_that_is_included_twice_counts_once_and_keeps_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        "[dependency-groups]\n"
        'all = [{ include-group = "Left" }, { include-group = "right" }]\n'
        'left = [{ include-group = "base" }]\n'
        'right = [{ include-group = "base" }, "attrs"]\n'
        'base = [\n  "numpy",\n]\n'
    )
    said = [one for one in read_project(path, "p").requirements if one.part == ":all"]
    assert [(one.name, one.line) for one in said] == [("attrs", 4), ("numpy", 6)]
    table = toml.loads(path.read_text())["dependency-groups"]
    assert groups_of(path)["all"] == set(resolve_dependency_groups(table, "all"))


def test_groups_that_double_with_each_level_are_read_in_one_pass(tmp_path: Path) -> None:
    levels = 200
    text = "[dependency-groups]\n"
    for level in range(levels):
        inner = f'{{ include-group = "g{level + 1}" }}'
        text += f"g{level} = [{inner}, {inner}]\n"
    path = tmp_path / "pyproject.toml"
    path.write_text(f'{text}g{levels} = ["numpy"]\n')
    assert len(read_project(path, "p").requirements) == levels + 1


def test_a_circle_of_groups_is_a_problem_here_and_for_packaging(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[dependency-groups]\na = [{ include-group = "b" }]\nb = [{ include-group = "a" }]\n'
        'c = [{ include-group = "c" }]\nd = [{ include-group = "gone" }]\n'
    )
    assert [(one.line, one.message) for one in read_project(path, "p").problems] == [
        (5, "the group `d` includes `gone`: there is no such group"),
        (3, "the group `b` includes `a`: a circle"),
        (2, "the group `a` includes `b`: a circle"),
        (4, "the group `c` includes `c`: a circle"),
    ]
    table = toml.loads(path.read_text())["dependency-groups"]
    for group in "ac":
        with pytest.raises(ExceptionGroup) as error:
            resolve_dependency_groups(table, group)
        assert error.group_contains(CyclicDependencyGroup)


def test_all_mistakes_of_a_target_are_told_at_once(tmp_path: Path) -> None:
    from buildmatrix.base.data import replace

    (tmp_path / "requirements.in").write_text("numpy ==\n-e .\n")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 1\n")
    wanted = RequirementSet(for_image=True)
    add_target(wanted, tmp_path, replace(CPU, pyproject="pyproject.toml"))
    places = [(one.file, one.line) for one in wanted.problems]
    assert places == [
        ("requirements.in", 1),
        ("requirements.in", 2),
        ("pyproject.toml", 2),
        ("pyproject.toml", 1),
    ]


def test_no_lock_for_an_image_is_made_of_what_conda_would_install(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies:\n  - numpy\n")
    wanted = RequirementSet(for_image=True)
    add_file(wanted, tmp_path / "environment.yml", "environment.yml")
    assert [one.line for one in wanted.problems] == [1]
    assert not wanted.conda


def test_many_extras_and_groups_cost_what_one_pass_does(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    extras = "".join(f"e{number} = []\n" for number in range(60_000))
    path.write_text(f"[project.optional-dependencies]\n{extras}")
    assert len(read_project(path, "p").extras) == 60_000
    inner = ", ".join(f'{{ include-group = "g{number}" }}' for number in range(150))
    groups = "".join(f"g{number} = [{inner}]\n" for number in range(150))
    path.write_text(f"[dependency-groups]\n{groups}")
    assert len(read_project(path, "p").problems) == 150
