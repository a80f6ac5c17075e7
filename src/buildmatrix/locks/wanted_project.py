"""What a target or a project asks for, with uv's say about where a distribution comes from."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.projects import (
    Project,
    ProjectRequirement,
    expand,
    line_of_key,
    reached,
    read_project,
)
from buildmatrix.locks.requirement_files import add_file, add_line, check
from buildmatrix.locks.text import mapping, string, strings
from buildmatrix.locks.uvsettings import settings_of, source_of
from buildmatrix.locks.wanted import Unbuilt, Wanted
from buildmatrix.parsing import parse_specifiers
from buildmatrix.spec.model import Target
from buildmatrix.text import shown


def read_asked(root: Path, target: Target) -> Wanted:
    """What `target` asks for, as a lock for its image is made of it.

    Raises `SpecError` with all problems: a file that is missing or is no text, a line that is no
    requirement, a requirement that names something on this machine, a `pyproject.toml` that does
    not say what it requires or does not support the target's Python.
    """
    wanted = Wanted(for_image=True)
    add_target(wanted, root, target)
    check(wanted)
    return wanted


def add_target(wanted: Wanted, root: Path, target: Target) -> None:
    """Add the requirement files and the `pyproject.toml` of `target`, with its extras."""
    for file in target.requirements:
        add_file(wanted, root / file, posixpath.normpath(file))
    if target.pyproject is not None:
        extras = frozenset(map(canonicalize_name, target.extras))
        label = posixpath.normpath(target.pyproject)
        try:
            add_project(wanted, Ask(root / target.pyproject, label, target, extras))
        except SpecError as error:
            wanted.problems += error.problems


def add_project(wanted: Wanted, ask: Ask) -> None:
    """Add the dependencies of the project `ask.path`, its extras and groups that are asked for.

    Problems go to `wanted`; raises `SpecError` for a file that is missing or no TOML, and for
    extras and groups that it does not have.
    """
    project = read_project(ask.path, ask.label)
    wanted.files[ask.label] = project.data
    _check_table(project, ask)
    wanted.problems += [*project.problems, *_problems(project, ask, wanted.for_image)]
    ask.check(project.extras, project.groups)
    parts = {"", *ask.extras, *(f":{group}" for group in ask.groups)}
    wanted.left_out = ask.left_out(project.extras - reached(project, parts), project.groups)
    if not wanted.for_image:
        wanted.settings = settings_of(ask.path.parent) or wanted.settings
    for said in expand(project, parts):
        _add(wanted, project, said, ask)


def _check_table(project: Project, ask: Ask) -> None:
    """Raise `SpecError` where only a table `[project]` could say what is asked for."""
    if isinstance(project.document.get("project"), dict):
        return
    if ask.groups and not ask.extras:
        return  # PEP 735: groups need no project.
    poetry = "poetry" in mapping(project.document.get("tool"))
    hint = f"name its {'`poetry.lock`' if poetry else 'lock'}, or a requirements file instead"
    raise SpecError([Problem("there is no table `[project]`", project.label, hint=hint)])


def _problems(project: Project, ask: Ask, for_image: bool) -> Iterator[Problem]:
    """What keeps the table `[project]` from saying what the target gets."""
    table = mapping(project.document.get("project"))
    if not table:
        return
    dynamic = strings(table.get("dynamic"))

    def problem(message: str, key: str, hint: str) -> Problem:
        line = line_of_key(project.text, key, "project")
        return Problem(message, project.label, line, hint=hint)

    for key in ("name", "version") if for_image else ():  # uv refuses a project without
        if not isinstance(table.get(key), str) and (key == "name" or key not in dynamic):
            why = f"`[project]` needs a `{key}` that is a string"
            yield problem(why, key, f'write `{key} = "..."`')
    for key in ("dependencies", *(["optional-dependencies"] if ask.extras else [])):
        if key in dynamic:
            why = f"`{key}` is dynamic, so this file does not say what is installed"
            yield problem(why, "dynamic", "name a requirements file instead")
    wanted = table.get("requires-python", "")
    try:
        pythons = parse_specifiers(wanted) if isinstance(wanted, str) else None
    except InvalidSpecifier:
        pythons = None
    if pythons is None:
        if for_image:  # else whoever builds the project is told; nothing here depends on it
            why = f"`requires-python` is {wanted!r}, and must be a version specifier"
            yield problem(why, "requires-python", 'write `requires-python = ">=3.11"`')
    elif not any(pythons.contains(f"{ask.target.python}.{patch}") for patch in range(100)):
        python = ask.target.python
        why = f"`requires-python` is `{wanted}`, and {ask.target.id} has Python {python}"
        yield problem(why, "requires-python", f"allow {python} here, or leave the target out")


def _add(wanted: Wanted, project: Project, said: ProjectRequirement, ask: Ask) -> None:
    # For a lock of an image uv reads the file itself.
    source = {} if wanted.for_image else source_of(said.name, project.document, ask)
    folder = ask.path.parent
    origin = _origin(source)
    if string(source.get("index")):
        wanted.bound[said.name] = string(source["index"])
        add_line(wanted, said.text, project.label, said.line, folder)
    elif origin.endswith(".whl"):
        add_line(wanted, _at(said.requirement, origin), project.label, said.line, folder)
    elif origin:
        if said.requirement.marker is None or ask.fits(str(said.requirement.marker)):
            place = project.place(said)
            wanted.unbuilt.append(Unbuilt(said.name, shown(origin), place))
    else:
        add_line(wanted, said.text, project.label, said.line, folder)


def _origin(source: Mapping[str, object]) -> str:
    """What an entry of `[tool.uv.sources]` names that is no index."""
    if git := string(source.get("git")):
        revision = next((string(source.get(key)) for key in ("rev", "tag", "branch")), "")
        return f"git+{git}" + (f"@{revision}" if revision else "")
    if source.get("workspace") is True:
        return "this workspace"
    place = string(source.get("url")) or string(source.get("path"))
    return posixpath.normpath(place) if place and "://" not in place else place


def _at(requirement: Requirement, where: str) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras} @ {where}{marker}"
