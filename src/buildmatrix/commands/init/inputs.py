"""Inputs of `init`: requirement files, and answers of an index and registries."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.base.errors import BuildmatrixError, Problem, SpecError
from buildmatrix.base.progress import Silent
from buildmatrix.base.toml import mapping, string, tables, tool_table
from buildmatrix.facts.trees.base import Closing
from buildmatrix.locks.model import Package
from buildmatrix.locks.preview import packages_of, resolve
from buildmatrix.locks.projects import read_project
from buildmatrix.locks.recent import Recent
from buildmatrix.locks.requirement_files import add_file, check
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.taken import is_package
from buildmatrix.locks.target_requirements import add_target
from buildmatrix.locks.uv import find_uv, settings_of
from buildmatrix.matrix.model import bare_target
from buildmatrix.net.http.failures import Patience, RequestError
from buildmatrix.net.registry import client
from buildmatrix.net.registry.mirrors import Mirrors
from buildmatrix.net.registry.reference import Reference


@dataclass(slots=True)
class ProjectInputs:
    """Contents of the inputs."""

    #: Normalized name → `file:line` of its first mention, in order.
    distributions: dict[str, str] = field(default_factory=dict)
    #: Unreadable inputs, with place and reason: `requirements.txt:7: ...`.
    unread: list[str] = field(default_factory=list)
    name: str = ""
    version: str = ""
    #: None where no `pyproject.toml` says it.
    requires_python: str | None = None
    extras: list[str] = field(default_factory=list)
    #: Extras that some other part excludes (`conflicts` of `[tool.uv]`).
    conflicting: set[str] = field(default_factory=set)
    #: True if the project itself, or its workspace, can be installed; and its scripts.
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
    inputs.unread += (
        f"{item.place}: {item.source} is built from source" for item in requirements.unbuilt
    )
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


# Queries to an index and to registries; nothing depends on an answer


#: A first specification is written without digests rather than waited for.
_PATIENCE = Patience(tries=1, connect=3.0, silence=5.0, request=8.0)


def asker_of_torch(
    requirements: Sequence[str], pyproject: str | None, root: Path, python: str, base: str
) -> str | None:
    """Return the requirer of torch, `sentence-transformers, requirements.in:3`; empty if none.

    None if the requirements, files below `root`, cannot be resolved.
    """
    target = dataclasses.replace(
        bare_target("cpu", "cpu", base=base, python=python),
        requirements=tuple(requirements),
        pyproject=pyproject,
    )
    try:
        wanted = RequirementSet(settings=settings_of(root), tolerant=True)
        add_target(wanted, root, target)
        check(wanted)
        answer = resolve(find_uv(), target, wanted, Recent(), Silent(), offline=False)
        packages = {package.name: package for package in packages_of(answer, target, wanted)}
    except BuildmatrixError:
        return None
    return ", ".join(_way(packages, "torch")) if "torch" in packages else ""


def _way(packages: Mapping[str, Package], name: str) -> list[str]:
    """Return the distributions that require a package, up to a line of a file."""
    way: list[str] = []
    while name in packages and len(way) < len(packages):
        askers = packages[name].via
        lines = [asker for asker in askers if asker not in packages]
        new = [asker for asker in askers if asker not in way]
        if lines or not new:
            return [*way, *lines[:1]]
        name = new[0]
        way.append(name)
    return way


class Digests(Closing):
    """Asks registries for digests of base images; one that does not answer is asked once."""

    def __init__(self) -> None:
        self._registry = client.Registry(patience=_PATIENCE, mirrors=Mirrors(os.environ))
        #: Registries that did not answer.
        self._silent: set[str] = set()

    def close(self) -> None:
        """Close all connections."""
        self._registry.close()

    def of(self, image: str) -> str:
        """The digest of an image; empty where its registry does not answer."""
        reference = Reference.parse(image)
        if reference.host in self._silent:
            return ""
        try:
            return self._registry.digest(reference)
        except RequestError as error:
            if error.status is None:
                self._silent.add(reference.host)
        except BuildmatrixError:
            pass  # The image is not there, or not for everybody.
        return ""
