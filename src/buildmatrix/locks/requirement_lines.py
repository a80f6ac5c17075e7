"""Requirements for locking, auditing and fixing, and the lines of files that add to them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct, field
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import parse_wheel_name
from buildmatrix.base.text import path_in, without_login
from buildmatrix.base.toml import mapping, strings
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.locks.lines import (
    ARCHIVE,
    HASHES,
    MOST_LINES,
    OTHER_HASH,
    SHA256,
    TRAILING_OPTIONS,
    LocatedRequirement,
    Place,
    RequirementLine,
    expand_variables,
    parse_bare_address,
    parse_named_address,
    parse_requirement,
    too_many,
)
from buildmatrix.locks.model import LeftOut, Package
from buildmatrix.locks.projects import Project, expand, narrow, read_project
from buildmatrix.locks.selection import BrokenMarker, marker_holds


class Unbuilt(Struct, frozen=True):
    """A line that names something to build: a folder, a repository, an archive of sources."""

    #: Normalized name; without one, the last part of the address.
    name: str
    #: Its source, without credentials.
    source: str
    #: `file:line`.
    place: str
    #: Environments that the line applies to (PEP 508); empty for all.
    marker: str = ""


class RequirementSet(Struct):
    """Requirements of all sources."""

    #: Label → bytes of every file read.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Requirements that a resolver accepts.
    lines: list[RequirementLine] = field(default_factory=list)
    constraints: list[RequirementLine] = field(default_factory=list)
    unbuilt: list[Unbuilt] = field(default_factory=list)
    #: Index options in uv's form, in reading order.
    options: list[str] = field(default_factory=list)
    #: Distributions to build from source; `:all:` for every one.
    no_binary: set[str] = field(default_factory=set)
    prerelease: bool = False
    #: Distribution → name of the index that `settings` ties it to.
    bound: dict[str, str] = field(default_factory=dict)
    #: Settings of uv that affect the resolution (`locks.uv`).
    settings: Mapping[str, object] = field(default_factory=dict)
    #: True if a missing wheel is unknown, and not a mistake.
    tolerant: bool = False
    #: True for a lock that an image is built from; uv then reads the same files itself.
    for_image: bool = False
    problems: list[Problem] = field(default_factory=list)
    #: Unselected parts of a project.
    left_out: LeftOut = field(default_factory=LeftOut)
    #: Files already begun, each with True if as constraints: the two are read differently.
    begun: set[tuple[str, bool]] = field(default_factory=set)
    #: Packages and unread files that conda installs.
    conda: list[Package] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    #: Required projects in local folders, by name, with their folders.
    local: dict[str, tuple[Project, Path]] = field(default_factory=dict)


def applies(line: RequirementLine | Unbuilt, environment: Mapping[str, str]) -> bool:
    """Return True if a line applies to an environment (PEP 508)."""
    marker = line.marker if isinstance(line, Unbuilt) else line.requirement.marker
    return not marker or marker_holds(str(marker), environment)


# Lines. Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.


_FRAGMENT = re.compile(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
#: sha256 of a file, as pip and `pip freeze` append it to an address.
_FRAGMENT_HASH = re.compile(r"[#&]sha256=([0-9A-Fa-f]{64})(?![0-9A-Fa-f])")
_EMPTY_MARKER = re.compile(r"\s*;\s*\Z")
#: Start of the address of a file, a folder or a repository.
_PLACE = re.compile(r"[./~]|[A-Za-z][A-Za-z0-9+.-]*:|[^\s;@\[\]]+/")
#: Rounds in which extras of local projects request one another.
_DEEPEST = 30


def add_line(requirements: RequirementSet, text: str, file: str, number: int, folder: Path) -> None:
    """Add one requirement; relative paths in it start from `folder`."""
    add_requirement(text, Place(file, number, folder), requirements)


def local_path_problem(text: str, place: Place) -> Problem:
    """Return the problem of a local path in a lock for an image."""
    problem = f"`{text}` is on this machine, and the image is built from the lock alone"
    hint = "publish it as a wheel, or bring source code into the image with `copy`"
    return place.problem(problem, hint=hint)


def add_requirement(line: str, place: Place, requirements: RequirementSet) -> None:
    """Add the requirement of one line, with its options."""
    text = TRAILING_OPTIONS.sub("", line)
    options = line[len(text) :]
    hashes = frozenset(digest.lower() for digest in SHA256.findall(options))
    strict = requirements.for_image or "--hash" in options
    if options and strict and not HASHES.fullmatch(options):
        problem = f"`{options.strip()}` is not an option of a requirement"
        hint = "only `--hash=sha256:...` can be here" if requirements.for_image else None
        requirements.problems.append(place.problem(problem, hint=hint))
        return
    is_hashed = bool(hashes or (not requirements.for_image and OTHER_HASH.search(options)))
    if "--hash" in options and not is_hashed:
        unchecked = "the hashes of this line cannot be checked: none of them is a SHA-256"
        hint = "write `--hash=sha256:...`, with 64 hex digits"
        requirements.problems.append(place.problem(unchecked, hint=hint))
        return
    if located := parse_named_address(text):
        _address(located, place, requirements, hashes)
        return
    located = parse_bare_address(text)
    if ARCHIVE.search(located.address) and not text.startswith("-"):
        # Also `demo-1.0-py3-none-any.whl`, which could be the name of a distribution.
        _address(located, place, requirements, hashes)
        return
    if not requirements.for_image:
        text = _EMPTY_MARKER.sub("", text)  # pip takes `demo;`, and uv does not.
    try:
        # A lock depends on the bytes of files, and not on variables of this machine.
        requirement = parse_requirement(text if requirements.for_image else expand_variables(text))
    except InvalidRequirement as error:
        if _PLACE.match(text):
            _address(located, place, requirements, hashes)
            return
        reason = str(error).splitlines()[0]
        message = f"`{without_login(text)}` is not a valid requirement: {reason}"
        column = _column(str(error))
        column = column + place.indent if column is not None else None
        requirements.problems.append(place.problem(message, column, "see PEP 508"))
        return
    _add(requirement, place, requirements, hashes, is_hashed)


def _add(
    requirement: Requirement,
    place: Place,
    requirements: RequirementSet,
    hashes: frozenset[str] = frozenset(),
    is_hashed: bool = False,
) -> None:
    if len(requirements.lines) + len(requirements.constraints) >= MOST_LINES:
        raise SpecError([too_many(place.label)])
    name = canonicalize_name(requirement.name)
    is_hashed = is_hashed or bool(hashes)
    line = RequirementLine(place.label, place.number, name, requirement, hashes, is_hashed)
    (requirements.constraints if place.constraint else requirements.lines).append(line)


def _address(
    located: LocatedRequirement, place: Place, requirements: RequirementSet, hashes: frozenset[str]
) -> None:
    """Add a requirement with an address: a wheel is read there, anything else is built."""
    name, address = located.name, located.address
    if requirements.for_image:
        _address_for_image(located, place, requirements, hashes)
        return
    expanded = expand_variables(address)
    if problem := _marker_problem(located.marker):
        requirements.problems.append(place.problem(problem, hint="see PEP 508"))
        return
    filename = posixpath.basename(path_in(expanded))
    if not filename.endswith(".whl"):
        if not place.constraint:
            _unbuilt(located, place, requirements)
        return
    try:
        distribution = str(parse_wheel_name(filename)[0])
    except (InvalidWheelFilename, InvalidVersion) as error:
        requirements.problems.append(
            place.problem(f"`{filename}` is not a valid name of a wheel: {error}")
        )
        return
    if _is_local(expanded):
        path = place.folder / _local_path(expanded)
        if not path.is_file() and requirements.tolerant:
            unbuilt = Unbuilt(canonicalize_name(distribution), address, str(place))
            requirements.unbuilt.append(unbuilt)
            return
        if not path.is_file():
            missing = f"there is no {address}"
            requirements.problems.append(place.problem(missing, hint="check the path"))
            return
        address = path.resolve().as_uri()
    if digest := _FRAGMENT_HASH.search(expanded):
        hashes |= {digest[1].lower()}
    _add_at(
        replace(located, name=name or distribution, address=address), place, requirements, hashes
    )


def _address_for_image(
    located: LocatedRequirement, place: Place, requirements: RequirementSet, hashes: frozenset[str]
) -> None:
    """Add it to a lock for an image: uv reads a missing name from the metadata at the address."""
    if _is_local(located.address):
        requirements.problems.append(local_path_problem(str(located), place))
    elif located.name:
        _add_at(located, place, requirements, hashes)
    elif hashes:
        problem = "the hashes of this line cannot be checked: it names no distribution"
        requirements.problems.append(place.problem(problem, hint="write `NAME @ URL`"))


def _add_at(
    located: LocatedRequirement, place: Place, requirements: RequirementSet, hashes: frozenset[str]
) -> None:
    try:
        requirement = parse_requirement(str(located))
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        message = f"`{without_login(str(located))}` is not a valid requirement: {reason}"
        requirements.problems.append(place.problem(message, hint="see PEP 508"))
        return
    _add(requirement, place, requirements, hashes)


def add_editable(text: str, place: Place, requirements: RequirementSet) -> None:
    """Add `-e ADDRESS`; pip and uv allow a name, extras, a marker and quotes around all."""
    text = TRAILING_OPTIONS.sub("", text).strip()
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1]
    located = parse_named_address(text) or parse_bare_address(text)
    if problem := _marker_problem(located.marker):
        requirements.problems.append(place.problem(problem, hint="see PEP 508"))
    elif not place.constraint:
        _unbuilt(located, place, requirements)


def _marker_problem(text: str) -> str | None:
    """Return the problem of a marker, if there is one."""
    try:
        marker_holds(text, {})
    except BrokenMarker as error:
        return f"`{text}` is not a valid marker: {error}"
    return None


def _is_local(address: str) -> bool:
    """Return True if an address is a path, or the URL of one."""
    return "://" not in address or address.startswith("file:")


def _local_path(address: str) -> str:
    """Return the path in `file:...`, unquoted if it is a URL; any other unchanged."""
    if not address.startswith("file:"):
        return address.split("#", 1)[0]
    return path_in(address)


def _unbuilt(located: LocatedRequirement, place: Place, requirements: RequirementSet) -> None:
    source = without_login(located.address + located.bracket)
    egg = _FRAGMENT.search(source)
    name = located.name or (egg[1] if egg else "")
    expanded = expand_variables(located.address)
    if _is_local(expanded):
        project = _project_in(_local_path(expanded), place, requirements)
        name = name or (project.name if project is not None else "")
        if project is not None:
            folder = place.folder / _local_path(expanded)
            requirements.local[canonicalize_name(name)] = project, folder
            extras = set(map(canonicalize_name, located.extras))
            _add_parts(project, {"", *extras}, folder, located.marker, requirements)
    path = path_in(source).split("@")[0]
    guess = posixpath.basename(path.rstrip("/")).removesuffix(".git")
    guess = re.sub(r"(\[.*|\.(zip|tar\.gz|tar\.bz2|tgz)$)", "", guess).strip("._-")
    shown = canonicalize_name(name or guess or "local-project")
    requirements.unbuilt.append(Unbuilt(shown, source, str(place), located.marker))


def _project_in(address: str, place: Place, requirements: RequirementSet) -> Project | None:
    """Return the project in a local folder, if there is one."""
    path = place.folder / address / "pyproject.toml"
    if not path.is_file():
        return None
    inside = posixpath.join(posixpath.dirname(place.label), address, "pyproject.toml")
    project = read_project(path, posixpath.normpath(inside))
    requirements.files[project.label] = project.data
    requirements.problems += project.problems
    return project


def _add_parts(
    project: Project,
    parts: Collection[str],
    folder: Path,
    marker: str,
    requirements: RequirementSet,
) -> None:
    """Add the static requirements of a local project; none if only its build would tell."""
    table = mapping(project.document.get("project"))
    if {"dependencies", "optional-dependencies"} & set(strings(table.get("dynamic"))):
        return
    for requirement in expand(project, parts):
        text = str(narrow(requirement.parsed, [marker])) if marker else requirement.text
        add_line(requirements, text, project.label, requirement.line, folder)


def expand_local(requirements: RequirementSet) -> None:
    """Replace requirements that name a project also required as a folder: the folder counts.

    Its extras are expanded in it, as pip and uv do, and no index is asked for it.
    """
    remaining: list[RequirementLine] = []
    queue = requirements.lines
    for _ in range(_DEEPEST):
        requirements.lines = []
        for line in queue:
            if line.name not in requirements.local or line.requirement.url is not None:
                remaining.append(line)
            elif line.requirement.extras:
                project, folder = requirements.local[line.name]
                extras = set(map(canonicalize_name, line.requirement.extras))
                marker = str(line.requirement.marker or "")
                _add_parts(project, extras, folder, marker, requirements)
        queue = requirements.lines
        if not queue:
            break
    else:
        requirements.problems.append(
            Problem("its extras ask for one another without end", queue[0].file, queue[0].line)
        )
    requirements.lines = remaining


def _column(error: str) -> int | None:
    """Return the column of packaging's caret below the line that it shows, from 1."""
    caret = next((line for line in error.splitlines() if line.rstrip().endswith("^")), "")
    return caret.index("^") - 3 if caret.startswith("    ") else None
