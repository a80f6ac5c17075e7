"""Committed locks, of any tool, as one target would install them, and their staleness."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.base.parsing import parse_specifiers, requirement_or_none
from buildmatrix.base.toml import mapping, string, strings, tables, tool_table
from buildmatrix.locks import pinned, poetrylock, pylock, uvlock
from buildmatrix.locks.condalock import read_conda_lock
from buildmatrix.locks.lines import RequirementLine, allows, format_extras, read_toml
from buildmatrix.locks.lock_file import LockCommand, LockFile, input_file, open_lock
from buildmatrix.locks.lookup import Pins
from buildmatrix.locks.model import File, Lock, Staleness
from buildmatrix.locks.pinned import read_pipfile_lock
from buildmatrix.locks.projects import (
    Project,
    ProjectRequirement,
    expand,
    find_project,
    read_project,
)
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.requirement_lines import applies
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.uv import settings_of
from buildmatrix.locks.uvlock import groups_of, project_of, roots_of
from buildmatrix.matrix.model import is_conda_lock, is_pylock

# Staleness. Proof is in the lock itself: a requirement is missing in it or has another version
# there, or the lock records a requirement that is gone. Each tool writes ranges in its own way,
# which changes with its releases: such a difference is reported as probable, with the command that
# decides. The tools themselves compare hashes of inputs (`taken`). A lock without records is not
# stale.


#: Part of a project and a name → requested extras and ranges.
_Requests = dict[tuple[str, str], set[tuple[frozenset[str], SpecifierSet | str]]]
_EXTRA = re.compile(r"""extra == ['"]([^'"]+)['"]""")
#: Keys of sources that uv gets from an address.
_ADDRESSES = ("url", "git", "path", "directory", "editable", "virtual")
#: Locks that only their own tool compares with their inputs: the file that they are made from, and
#: the command. Hashes of inputs change with the releases of the tool.
TOOL_CHECKS: Mapping[str, tuple[str, str]] = {
    "poetry.lock": ("pyproject.toml", "poetry check --lock"),
    "Pipfile.lock": ("Pipfile", "pipenv verify"),
    "pixi.lock": ("pixi.toml", "pixi lock --check"),
}


def uv_staleness(file: LockFile, lock: Lock) -> Staleness | None:
    """Return why `uv.lock` does not fit its projects; None if it does, or if none is here."""
    selection = file.selection
    seeming: Staleness | None = None
    for root in roots_of(file.document):
        project = project_of(root, selection)
        metadata = root.get("metadata")
        if project is None or not isinstance(metadata, dict):
            continue
        requested = _collect_requests(project)
        recorded, elsewhere = _read_recorded(metadata, project.name)
        if reason := _find_other_name(project, requested, recorded, file.label):
            return Staleness(reason)
        # Overrides: uv takes these, whatever ranges the project has.
        settled = elsewhere | _read_names(mapping(file.document.get("manifest")).get("overrides"))
        pins = {
            package.name: package.version
            for package in lock.packages
            if package.name not in settled
        }
        lines = (
            _make_line(project, requirement)
            for requirement in expand(project, {"", *selection.extras})
        )
        if reason := _find_unmet((line for line in lines if line.name in pins), pins, selection):
            return Staleness(reason)
        if reason := _find_other_range(project, requested, recorded, elsewhere, file.label):
            seeming = seeming or Staleness(f"{reason}; `uv lock --check` decides", is_proven=False)
    return seeming


def pipenv_staleness(file: LockFile) -> Staleness | None:
    """Return the proof that `Pipfile.lock` does not fit the `Pipfile`, or None."""
    path, label = file.selection.beside("Pipfile")
    try:
        document = read_toml(path, label)
    except SpecError:
        return None
    for section, part in (("packages", "default"), ("dev-packages", "develop")):
        held = set(map(canonicalize_name, mapping(file.document.get(part))))
        for name in mapping(document.get(section)):
            if canonicalize_name(name) not in held:
                return Staleness(f"{label} asks for {name}, and {file.label} was made without it")
    return None


def describe_unchecked(selection: LockSelection) -> str:
    """Return a sentence if only the lock's own tool knows that it fits its inputs; else nothing."""
    inputs, command = TOOL_CHECKS.get(selection.path.name, ("", ""))
    path, label = selection.beside(inputs)
    if not (command and path.is_file()):
        return ""
    return f"{selection.label} was not checked against {label}; `{command}` decides"


def pinned_staleness(
    selection: LockSelection, lock: Lock, command: LockCommand | None
) -> Staleness | None:
    """Return why pinned requirements do not fit the inputs in their header, or None."""
    pins = {package.name: package.version for package in lock.packages}
    own_files = {package.place.partition(":")[0] for package in lock.packages}
    requested: set[str] = set()
    inputs: list[str] = []
    for file in command.files if command is not None else ():
        location = input_file(selection, file)
        if location is None or location[1] in own_files:
            continue
        try:
            lines = list(_read_lines(*location))
        except SpecError:
            return None  # The resolution reports what is wrong with it.
        inputs.append(location[1])
        requested |= {line.name for line in lines}
        if reason := _find_unmet(lines, pins, selection):
            return Staleness(reason)
    for package in lock.packages:
        named = [via for via in package.via if via in inputs]
        if named and package.name not in requested:
            reason = (
                f"{selection.label} has {package.name} for {named[0]}, which no longer asks for it"
            )
            return Staleness(reason)
    return None


# uv.lock


def _find_other_name(
    project: Project, requested: _Requests, recorded: _Requests, label: str
) -> str | None:
    """Return the distribution that only the project requires, or that only the lock has."""
    table = mapping(project.document.get("project"))
    dynamic = {"dependencies", "optional-dependencies"} & set(strings(table.get("dynamic")))
    for part, name in sorted({*requested} ^ {*recorded}):
        if dynamic and not part.startswith(":"):
            continue  # Only a build of the project would say.
        part_phrase = f" in `{part.lstrip(':')}`" if part else ""
        if (part, name) in recorded:
            return (
                f"{project.label} no longer asks for {name}{part_phrase}, and {label} still has it"
            )
        return f"{project.label} asks for {name}{part_phrase}, and {label} was made without it"
    return None


def _find_other_range(
    project: Project,
    requested: _Requests,
    recorded: _Requests,
    elsewhere: Collection[str],
    label: str,
) -> str | None:
    """Return the distribution that the project requires in another range, or with other extras."""
    for part, name in sorted({*requested} & {*recorded}):
        if requested[part, name] != recorded[part, name] and name not in elsewhere:
            part_phrase = f" in `{part.lstrip(':')}`" if part else ""
            wants, was = (
                _format_request(name, requirements[part, name])
                for requirements in (requested, recorded)
            )
            return f"{project.label} asks for {wants}{part_phrase}, and {label} was made for {was}"
    return None


def _collect_requests(project: Project) -> _Requests:
    requests: _Requests = {}
    for part in {requirement.part for requirement in project.requirements}:
        for requirement in expand(project, {part}):
            key = _find_part(str(requirement.parsed.marker or ""), part), requirement.name
            extras = frozenset(map(canonicalize_name, requirement.parsed.extras))
            requests.setdefault(key, set()).add((extras, requirement.parsed.specifier))
    return requests


def _read_recorded(metadata: Mapping[str, object], own: str) -> tuple[_Requests, set[str]]:
    """Return uv's record of each part's requirements, and names that come from an address.

    The project's own extras are expanded. Some releases of uv, and some build backends, record the
    expansion of `all = ["acme[docs]"]`, others the text: both mean the same.
    """
    by_part: dict[str, list[Mapping[str, object]]] = {}
    for item in tables(metadata.get("requires-dist")):
        by_part.setdefault(_find_part(string(item.get("marker")), ""), []).append(item)
    for group, items in groups_of(metadata).items():
        by_part[f":{canonicalize_name(group)}"] = tables(items)
    requests: _Requests = {}
    elsewhere: set[str] = set()
    for part in by_part:
        reached = [part]
        for reached_part in reached:  # grows while it is walked
            for item in by_part.get(reached_part, ()):
                name = canonicalize_name(string(item.get("name")))
                extras = frozenset(map(canonicalize_name, strings(item.get("extras"))))
                if name == own:
                    reached += [extra for extra in sorted(extras) if extra not in reached]
                    continue
                ranged = _parse_range(string(item.get("specifier")))
                requests.setdefault((part, name), set()).add((extras, ranged))
                if any(key in item for key in _ADDRESSES):
                    elsewhere.add(name)
    return requests, elsewhere


def _find_part(marker: str, part: str) -> str:
    """Return the extra that a marker names; else `part`."""
    extra = _EXTRA.search(marker)
    return canonicalize_name(extra[1]) if extra else part


def _parse_range(text: str) -> SpecifierSet | str:
    """Return a range that equals others with the same meaning in another order or spelling."""
    try:
        return parse_specifiers(text)
    except InvalidSpecifier:
        return text


def _read_names(items: object) -> set[str]:
    return {canonicalize_name(string(item.get("name"))) for item in tables(items)}


def _format_request(name: str, requests: set[tuple[frozenset[str], SpecifierSet | str]]) -> str:
    extras, ranged = min(requests, key=lambda request: (str(request[1]), sorted(request[0])))
    return f"{name}{format_extras(extras)}{ranged}"


# Requirements against locked versions


def _read_lines(path: Path, label: str) -> Iterator[RequirementLine]:
    if path.name == "pyproject.toml":
        project = read_project(path, label)
        yield from (_make_line(project, requirement) for requirement in expand(project, {""}))
    elif path.suffix in (".in", ".txt"):
        yield from read_requirements(path, label).lines


def _make_line(project: Project, requirement: ProjectRequirement) -> RequirementLine:
    return RequirementLine(project.label, requirement.line, requirement.name, requirement.parsed)


def _find_unmet(
    lines: Iterable[RequirementLine], pins: Mapping[str, str], selection: LockSelection
) -> str | None:
    """Return the first line that the versions of a lock do not meet, in words."""
    for line in lines:
        if not applies(line, selection.environment) or line.requirement.url is not None:
            continue
        version = pins.get(line.name)
        # A build from a folder or a repository has no version.
        if version is not None and allows(line.requirement, version):
            continue
        has = f"has no {line.name}" if version is None else f"has {line.name} {version}"
        return f"{line} asks for {line.requirement}, and {selection.label} {has}"
    return None


def is_lock(name: str) -> bool:
    """Return True if a file is a lock by its name."""
    return is_pylock(name) or name in _READERS or is_conda_lock(name)


def export_command(label: str) -> str:
    """Return the command that exports a lock which only its own tool reads; else nothing."""
    name = label.rpartition("/")[2]
    if name == "pdm.lock":
        return "pdm export -f pylock -o pylock.toml"
    if name.endswith(".py.lock"):
        script = label.removesuffix(".lock")
        output = f"pylock.{name.removesuffix('.py.lock')}.toml"
        return shlex.join(["uv", "export", "--script", script, "-o", output])
    return ""


def read_committed(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    """Read a lock for a target, and why it is older than its inputs, if so.

    Raises `SpecError` for a lock that is broken or is for other targets, `UsageError` for a file
    whose name is not that of a lock.
    """
    name = selection.path.name
    if is_pylock(name):
        pins, stale = Pins(pylock.read(open_lock(selection, "")), {}), None
    elif is_conda_lock(name):
        conda, stale = read_conda_lock(selection)
        pins = Pins(conda, {})
    elif name in _READERS:
        pins, stale = _READERS[name](selection)
    elif name.endswith((".txt", ".in")):
        pins, command = pinned.read(selection)
        stale = pinned_staleness(selection, pins.lock, command)
    elif export := export_command(selection.label):
        made = f"{selection.label} is not supported; run `{export}` to make one that is"
        raise UsageError(made)
    else:
        readable = ", ".join(
            [
                "pylock.toml",
                *_READERS,
                "pixi.lock",
                "conda-lock.yml",
                "a pinned requirements file (*.txt)",
            ]
        )
        raise UsageError(f"{selection.label} is not a supported lock; supported are {readable}")
    lock = replace(pins.lock, decided=pins.lock.decided | _find_decided(selection))
    return replace(pins, lock=_rebase_paths(lock, selection.path.parent)), stale


def _find_decided(selection: LockSelection) -> frozenset[str]:
    """Return the project beside a lock, and names that its settings for uv decide."""
    project = find_project(*selection.beside("pyproject.toml"))
    names = {project.name} if project is not None else set()
    if project is not None:
        names.add(canonicalize_name(string(tool_table(project.document, "poetry").get("name"))))
    try:
        settings = settings_of(selection.path.parent)
    except SpecError:
        settings = {}
    lines = strings(settings.get("override-dependencies"))
    for line in (*lines, *strings(settings.get("exclude-dependencies"))):
        requirement = requirement_or_none(line)
        names |= {canonicalize_name(requirement.name)} if requirement is not None else set()
    for item in tables(settings.get("dependency-metadata")):
        names.add(canonicalize_name(string(item.get("name"))))
    return frozenset(names - {""})


def _read_uv(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    file = open_lock(selection, "uv lock")
    lock = uvlock.read(file)
    return Pins(lock, {}), uv_staleness(file, lock)


def _read_poetry(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    # A requirement that the lock lacks is an error of `read`.
    return Pins(poetrylock.read(open_lock(selection, "poetry lock")), {}), None


def _read_pipenv(selection: LockSelection) -> tuple[Pins, Staleness | None]:
    file = open_lock(selection, "pipenv lock")
    return Pins(*read_pipfile_lock(file)), pipenv_staleness(file)


_READERS: Mapping[str, Callable[[LockSelection], tuple[Pins, Staleness | None]]] = {
    "uv.lock": _read_uv,
    "poetry.lock": _read_poetry,
    "Pipfile.lock": _read_pipenv,
}


def _rebase_paths(lock: Lock, folder: Path) -> Lock:
    """Return the lock with paths of local files relative to here, not to the lock."""

    def rooted(file: File) -> File:
        if not file.url or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", file.url):
            return file
        return replace(file, url=str(folder / file.url))

    return replace(
        lock,
        packages=tuple(
            replace(
                package,
                wheels=tuple(map(rooted, package.wheels)),
                sdist=package.sdist and rooted(package.sdist),
            )
            for package in lock.packages
        ),
    )
