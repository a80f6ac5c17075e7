"""What a `pyproject.toml` asks for, with uv's say about where each distribution comes from."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from packaging.requirements import Requirement

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.projects import Project, Said, expand, line_of_key, reached, read_project
from buildmatrix.locks.text import mapping, string, strings
from buildmatrix.locks.uvsettings import settings_of, source_of
from buildmatrix.locks.wanted import Unbuilt, Wanted, add_line
from buildmatrix.parsing import parse_specifiers
from buildmatrix.text import shown


def add_project(wanted: Wanted, ask: Ask) -> None:
    """Add the dependencies of the project `ask.path`, its extras and groups that are asked for.

    Problems go to `wanted`; raises `SpecError` for a file that is missing or no TOML, and for
    extras and groups that it does not have.
    """
    project = read_project(ask.path, ask.label)
    wanted.files[ask.label] = project.data
    _check_table(project, ask)
    ask.check(project.extras, project.groups)
    indirect = reached(project, ask.extras | {f":{group}" for group in ask.groups})
    wanted.left_out = ask.left_out(project.extras - indirect, project.groups)
    wanted.problems += [*project.problems, *_problems(project, ask)]
    wanted.settings = settings_of(ask.path.parent) or wanted.settings
    parts = {"", *ask.extras, *(f":{group}" for group in ask.groups)}
    for said in expand(project, parts):
        _add(wanted, project, said, ask)


def _check_table(project: Project, ask: Ask) -> None:
    """Raise `SpecError` where only a table `[project]` could say what is asked for."""
    if isinstance(project.document.get("project"), dict):
        return
    if ask.groups and not ask.extras:
        return  # PEP 735: groups need no project.
    poetry = "poetry" in mapping(project.document.get("tool"))
    hint = f"audit its {'`poetry.lock`' if poetry else 'lock'}, or a requirements file instead"
    raise SpecError([Problem("there is no table `[project]`", project.label, hint=hint)])


def _problems(project: Project, ask: Ask) -> list[Problem]:
    table = mapping(project.document.get("project"))
    if not table:
        return []
    keys = ["dependencies", *(["optional-dependencies"] if ask.extras else [])]
    line = line_of_key(project.text, "dynamic", "project")
    problems = [
        Problem(
            f"`{key}` is dynamic, so this file does not say what is installed",
            project.label,
            line,
            hint="name a requirements file instead",
        )
        for key in keys
        if key in strings(table.get("dynamic"))
    ]
    wanted = string(table.get("requires-python"))
    if not _reaches(wanted, ask.target.python):
        problem = f"`requires-python` is `{wanted}`, and {ask.target.id} has {ask.target.python}"
        line = line_of_key(project.text, "requires-python", "project")
        problems.append(Problem(problem, project.label, line))
    return problems


def _reaches(wanted: str, python: str) -> bool:
    try:
        pythons = parse_specifiers(wanted)
    except ValueError:
        return True  # Whoever builds the project is told; nothing here depends on it.
    return any(pythons.contains(f"{python}.{patch}") for patch in range(100))


def _add(wanted: Wanted, project: Project, said: Said, ask: Ask) -> None:
    source = source_of(said.name, project.document, ask)
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
