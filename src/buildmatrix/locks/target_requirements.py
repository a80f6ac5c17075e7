"""Requirements of a target or a project, and groups of targets with equal ones."""

from __future__ import annotations

import posixpath
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.text import listing, shown
from buildmatrix.base.toml import mapping, string, strings, tool_table
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.locks.lines import address_of, format_extras
from buildmatrix.locks.projects import (
    Project,
    ProjectRequirement,
    expand,
    line_of_key,
    no_project_table,
    reachable_parts,
    read_project,
)
from buildmatrix.locks.pylock import input_values, read_lock
from buildmatrix.locks.requirement_files import add_file, check
from buildmatrix.locks.requirement_lines import RequirementSet, Unbuilt, add_line
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.uv import settings_of, source_of
from buildmatrix.matrix.model import Target

#: Names in a sentence, and characters of one.
_NAMED, _LONGEST_NAME = 12, 80

# Requirements, with uv's settings of their sources


def read_target_requirements(root: Path, target: Target) -> RequirementSet:
    """Return the requirements of `target` for the lock of its image.

    Raises `SpecError` with all problems: a file that is missing or not text, an invalid
    requirement, a requirement that names something on this machine, a `pyproject.toml` without
    static requirements or support for the target's Python.
    """
    requirements = RequirementSet(for_image=True)
    add_target(requirements, root, target)
    check(requirements)
    return requirements


def add_target(requirements: RequirementSet, root: Path, target: Target) -> None:
    """Add the requirement files and the `pyproject.toml` of `target`, with its extras."""
    for file in target.requirements:
        add_file(requirements, root / file, posixpath.normpath(file))
    if target.pyproject is not None:
        extras = frozenset(map(canonicalize_name, target.extras))
        label = posixpath.normpath(target.pyproject)
        try:
            add_project(requirements, LockSelection(root / target.pyproject, label, target, extras))
        except SpecError as error:
            requirements.problems += error.problems


def add_project(requirements: RequirementSet, selection: LockSelection) -> None:
    """Add the dependencies of the project `selection.path`, with the selected extras and groups.

    Problems go to `requirements`; raises `SpecError` for a file that is missing or not TOML, and
    for missing extras and groups.
    """
    project = read_project(selection.path, selection.label)
    requirements.files[selection.label] = project.data
    _check_table(project, selection)
    requirements.problems += [
        *project.problems,
        *_problems(project, selection, requirements.for_image),
    ]
    selection.check(project.extras, project.groups)
    parts = {"", *selection.extras, *(f":{group}" for group in selection.groups)}
    requirements.left_out = selection.left_out(
        project.extras - reachable_parts(project, parts), project.groups
    )
    if not requirements.for_image:
        requirements.settings = settings_of(selection.path.parent) or requirements.settings
        requirements.unread += _unread_of_pixi(project)
    for requirement in expand(project, parts):
        _add(requirements, project, requirement, selection)


def _unread_of_pixi(project: Project) -> tuple[Unread, ...]:
    """Return what pixi installs by `[tool.pixi]` as one unread entry; empty if it adds nothing."""
    pixi = tool_table(project.document, "pixi")
    parts = [pixi, *map(mapping, mapping(pixi.get("feature")).values())]
    for feature in tuple(parts):
        parts += map(mapping, mapping(feature.get("target")).values())
    names = {name: None for part in parts for name in mapping(part.get("dependencies"))}
    for part in parts:
        for name, value in mapping(part.get("pypi-dependencies")).items():
            if "path" not in mapping(value):  # The project itself, or one beside it.
                names[name] = None
    names.pop("python", None)
    if not names:
        return ()
    line = line_of_key(project.text, next(iter(names)), "tool.pixi.dependencies")
    named = listing((shown(name)[:_LONGEST_NAME] for name in names), _NAMED)
    reason = f"pixi installs {named} by `[tool.pixi]`, which is not read here; audit pixi.lock"
    return (Unread(f"{project.label}:{line}", reason),)


def _check_table(project: Project, selection: LockSelection) -> None:
    """Raise `SpecError` if a missing `[project]` table is needed for the requirements."""
    if isinstance(project.document.get("project"), dict):
        return
    if selection.groups and not selection.extras:
        return  # PEP 735: groups need no project.
    raise no_project_table(project)


def _problems(project: Project, selection: LockSelection, for_image: bool) -> Iterator[Problem]:
    """Yield problems of the table `[project]` that prevent locking."""
    table = mapping(project.document.get("project"))
    if not table:
        return
    dynamic = strings(table.get("dynamic"))

    def problem(message: str, key: str, hint: str) -> Problem:
        line = line_of_key(project.text, key, "project")
        return Problem(message, project.label, line, hint=hint)

    for key in ("name", "version") if for_image else ():  # uv refuses a project without
        if not isinstance(table.get(key), str) and (key == "name" or key not in dynamic):
            text = f"`[project]` needs a `{key}` that is a string"
            yield problem(text, key, f'write `{key} = "..."`')
    for key in ("dependencies", *(["optional-dependencies"] if selection.extras else [])):
        if key in dynamic:
            text = f"`{key}` is dynamic, so this file does not have the requirements"
            yield problem(text, "dynamic", "name a requirements file instead")
    specifier = table.get("requires-python", "")
    try:
        pythons = parse_specifiers(specifier) if isinstance(specifier, str) else None
    except InvalidSpecifier:
        pythons = None
    if pythons is None:
        if for_image:  # else its build reports it; nothing here depends on it
            text = f"`requires-python` is {specifier!r}, and must be a version specifier"
            yield problem(text, "requires-python", 'write `requires-python = ">=3.11"`')
    elif not any(pythons.contains(f"{selection.target.python}.{patch}") for patch in range(100)):
        python = selection.target.python
        text = f"`requires-python` is `{specifier}`, and {selection.target.id} has Python {python}"
        yield problem(text, "requires-python", f"allow {python} here, or exclude the target")


def _add(
    requirements: RequirementSet,
    project: Project,
    requirement: ProjectRequirement,
    selection: LockSelection,
) -> None:
    # For a lock of an image uv reads the file itself.
    source = (
        {} if requirements.for_image else source_of(requirement.name, project.document, selection)
    )
    text, marker = requirement.text, str(requirement.parsed.marker or "")
    origin = _origin(source)
    if index := string(source.get("index")):
        requirements.bound[requirement.name] = index
    elif origin.endswith(".whl"):
        extras = format_extras(requirement.parsed.extras)
        text = f"{requirement.parsed.name}{extras} @ {origin}" + (f" ; {marker}" if marker else "")
    elif origin:
        if selection.fits(marker):
            place = project.place(requirement)
            requirements.unbuilt.append(Unbuilt(requirement.name, shown(origin), place))
        return
    add_line(requirements, text, project.label, requirement.line, selection.path.parent)


def _origin(source: Mapping[str, object]) -> str:
    """Return the target of an entry of `[tool.uv.sources]` that is not an index."""
    if git := string(source.get("git")):
        revision = next((string(source.get(key)) for key in ("rev", "tag", "branch")), "")
        return f"git+{git}" + (f"@{revision}" if revision else "")
    if source.get("workspace") is True:
        return "this workspace"
    place = address_of(source)
    return posixpath.normpath(place) if place and "://" not in place else place


# Questions to uv. Many targets of a matrix differ in nothing that affects a resolution, only in
# copied sources, commands or tags. Those share one resolution (`group_questions`).


class Question(Struct, frozen=True):
    """One target to resolve, with all inputs of its lock."""

    target: Target
    requirements: RequirementSet
    #: Inputs that the lock records (`locks.pylock`).
    inputs: Mapping[str, str]
    #: Versions to keep if they still fit.
    preferred: Mapping[str, str]

    @property
    def key(self) -> Hashable:
        """Key that is equal for two questions of one run with equal answers.

        Recorded inputs leave out secrets and orders; here logins of indexes count, and orders,
        which decide between two families that claim one distribution.
        """
        target = self.target
        return (
            tuple(self.inputs.items()),
            target.requirements,
            target.extras,
            tuple(target.index.items()),
            tuple(target.replace.items()),
            tuple(sorted(self.preferred.items())),
        )


def question(root: Path, target: Target, upgrade: bool | Sequence[str]) -> Question:
    """Return the question of `target`, with paths from `root`; `upgrade` as for `lock_targets`.

    Raises `SpecError` for unreadable inputs, and `UndecidedError` for an unsupported platform.
    """
    requirements = read_target_requirements(root, target)
    inputs = input_values(root, target, requirements)
    return Question(target, requirements, inputs, _kept_versions(root / target.lock, upgrade))


def group_questions(questions: Iterable[Question]) -> tuple[tuple[Question, ...], ...]:
    """Group questions with equal answers, in the order of the first of each."""
    groups: dict[Hashable, list[Question]] = {}
    for item in questions:
        groups.setdefault(item.key, []).append(item)
    return tuple(map(tuple, groups.values()))


def _kept_versions(path: Path, upgrade: bool | Sequence[str]) -> Mapping[str, str]:
    """Return versions of the present lock that a new resolution should keep if it can."""
    if upgrade is True:
        return {}
    try:
        lock = read_lock(path)
    except SpecError:
        return {}  # No lock yet, or a broken one: it is about to be replaced.
    given_up = {canonicalize_name(name) for name in upgrade or ()}
    return {
        package.name: package.version
        for package in lock.packages
        if package.version and package.name not in given_up
    }
