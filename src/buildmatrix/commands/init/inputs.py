"""Which distributions a project requires, as far as its requirement inputs say so themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.projects import read_project
from buildmatrix.locks.requirement_files import add_file
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.taken import is_package
from buildmatrix.toml import mapping, string, tables, tool_table


@dataclass(slots=True)
class ProjectInputs:
    """What the inputs say."""

    #: Normalized name → `file:line` of its first mention, in order.
    distributions: dict[str, str] = field(default_factory=dict)
    #: What was not understood, with its place and the reason: `requirements.txt:7: ...`.
    unread: list[str] = field(default_factory=list)
    name: str = ""
    version: str = ""
    #: None where no `pyproject.toml` says it.
    requires_python: str | None = None
    extras: list[str] = field(default_factory=list)
    #: Extras that some other part excludes (`conflicts` of `[tool.uv]`).
    conflicting: set[str] = field(default_factory=set)
    #: Whether the project itself, or its workspace, can be installed; and its scripts.
    is_package: bool = False
    scripts: list[str] = field(default_factory=list)


def read_inputs(paths: Sequence[Path], *, is_locked: bool = False) -> ProjectInputs:
    """Read requirements files and `pyproject.toml` files.

    Where the project `is_locked`, a `pyproject.toml` need not say what is required.

    Raises:
        SpecError: a file is missing or cannot be read.
    """
    inputs = ProjectInputs()
    for path in paths:
        if path.suffix == ".toml":
            _read_project(path, inputs, is_locked)
        else:
            _read_requirements(path, inputs)
    return inputs


def _read_requirements(path: Path, inputs: ProjectInputs) -> None:
    requirements = RequirementSet(tolerant=True)
    add_file(requirements, path, path.name)
    if path.name not in requirements.files:  # it could not be read
        raise SpecError(requirements.problems)
    for line in requirements.lines:
        inputs.distributions.setdefault(line.name, str(line))
    inputs.unread += [
        f"{unbuilt.place}: {unbuilt.source} is built from source"
        for unbuilt in requirements.unbuilt
    ]
    inputs.unread += (f"{unread.path}: {unread.why}" for unread in requirements.unread)
    inputs.unread += map(str, requirements.problems)
    names = dict.fromkeys(option.partition(" ")[0] for option in requirements.options)
    inputs.unread += [f"{path.name}: the option {name} is left to the resolver" for name in names]


def _read_project(path: Path, inputs: ProjectInputs, is_locked: bool) -> None:
    project = read_project(path, path.name)
    poetry = tool_table(project.document, "poetry")
    table = project.document.get("project", poetry if is_locked else None)
    if not isinstance(table, dict):
        hint = "name a requirements file instead"
        raise SpecError([Problem("there is no table `[project]`", str(path), hint=hint)])
    inputs.name, inputs.version = string(table.get("name")), string(table.get("version"))
    requires_python = table.get("requires-python")
    inputs.requires_python = requires_python if isinstance(requires_python, str) else None
    inputs.extras += mapping(table.get("optional-dependencies"))
    uv = tool_table(project.document, "uv")
    conflicts = uv.get("conflicts")
    for several in conflicts if isinstance(conflicts, list) else ():
        inputs.conflicting |= {
            canonicalize_name(string(item.get("extra"))) for item in tables(several)
        }
    inputs.is_package = is_package(path) or "workspace" in uv
    if inputs.is_package:
        inputs.scripts += mapping(table.get("scripts"))
    for requirement in project.requirements:
        if not requirement.part.startswith(":"):
            inputs.distributions.setdefault(requirement.name, project.place(requirement))
    inputs.unread += map(str, project.problems)
