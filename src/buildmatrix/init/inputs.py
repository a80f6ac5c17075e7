"""Which distributions a project asks for, as far as its requirement inputs say so outright."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from buildmatrix import toml
from buildmatrix.errors import UsageError
from buildmatrix.parsing import parse_requirement

#: Bytes of one file, and files that include each other with `-r`.
MAX_SIZE = 1_000_000
MAX_FILES = 50


@dataclass(slots=True)
class ProjectInputs:
    """What was found in the inputs."""

    #: Normalized name → `file:line` (or the file) of its first mention, in order.
    distributions: dict[str, str] = field(default_factory=dict)
    #: Places that were not understood, with the reason: `requirements.txt:7: ...`.
    unread: list[str] = field(default_factory=list)
    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    extras: list[str] = field(default_factory=list)


def read_inputs(paths: Sequence[Path]) -> ProjectInputs:
    """Read requirements files and `pyproject.toml` files.

    Raises:
        UsageError: a file is missing or cannot be read.
    """
    inputs = ProjectInputs()
    for path in paths:
        if path.suffix == ".toml":
            _read_pyproject(path, inputs)
        else:
            _read_requirements(path, inputs, set())
    return inputs


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file; name a requirements file or a pyproject.toml")
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise UsageError(f"{path} has more than {MAX_SIZE:,} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _read_requirements(path: Path, inputs: ProjectInputs, begun: set[Path]) -> None:
    if path in begun or len(begun) >= MAX_FILES:
        return
    begun.add(path)
    continued = ""
    for number, line in enumerate(_text(path).splitlines(), start=1):
        line = continued + re.sub(r"(^|\s)#.*$", "", line).strip()
        continued = line[:-1] if line.endswith("\\") else ""
        if not line or continued:
            continue
        place = f"{path.name}:{number}"
        if included := re.fullmatch(r"(?:-r\s*|--requirement[\s=])\s*(\S+)", line):
            _read_included(path.parent / included[1], place, inputs, begun)
        elif line.startswith("-"):
            option = re.split(r"[\s=]", line)[0]
            inputs.unread.append(f"{place}: the option {_plain(option)} is left to the resolver")
        else:
            _add(line.split(" --hash")[0].strip(), place, inputs)


def _read_included(path: Path, place: str, inputs: ProjectInputs, begun: set[Path]) -> None:
    if path.is_file():
        _read_requirements(path, inputs, begun)
    else:
        inputs.unread.append(f"{place}: the file that it includes is not there")


def _read_pyproject(path: Path, inputs: ProjectInputs) -> None:
    try:
        document = toml.loads(_text(path))
    except toml.TomlError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    project = document.get("project")
    if not isinstance(project, dict):
        raise UsageError(f"{path} has no [project] table; name a requirements file instead")
    inputs.name = _string(project.get("name"))
    inputs.version = _string(project.get("version"))
    inputs.requires_python = _string(project.get("requires-python"))
    optional = project.get("optional-dependencies")
    groups = {"": project.get("dependencies")} | (optional if isinstance(optional, dict) else {})
    for extra, requirements in groups.items():
        if extra and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", extra):
            inputs.extras.append(extra)
        for requirement in requirements if isinstance(requirements, list) else ():
            place = f"{path.name}, extra {extra}" if extra else path.name
            if isinstance(requirement, str):
                _add(requirement, place, inputs)


def _add(text: str, place: str, inputs: ProjectInputs) -> None:
    try:
        name = canonicalize_name(parse_requirement(text).name)
    except InvalidRequirement:
        inputs.unread.append(f"{place}: this line names no distribution")
    else:
        inputs.distributions.setdefault(name, place)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z-]", "", text)[:40]
