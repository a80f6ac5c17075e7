"""What a requirements file asks for, read to be judged and not to be built.

A lock for an image refuses what lies on this machine or in a repository (`lock.requirements`). Here
such a line is no mistake: it stands for something that nobody knows before it is built.
Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from buildmatrix.errors import Problem, SpecError
from buildmatrix.lock.markers import BrokenMarker, holds
from buildmatrix.lock.projects import read_project
from buildmatrix.lock.requirements import (
    ARCHIVE,
    HASHES,
    INCLUDE,
    SHA256,
    TRAILING_OPTIONS,
    Line,
    logical_lines,
)
from buildmatrix.lock.text import decode, mapping, read_bytes, string, strings
from buildmatrix.lock.urls import path_in, redact

#: Far above any real requirements file: 1000 pins with twenty hashes each are 2 MB.
_LARGEST = 16 * 1024 * 1024
#: Files that one may include, one within the other.
_DEEPEST = 30
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S.*)")
_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z-]*)(?:\s*=\s*|\s+|$)(.*)")
_SHORT = {"-i": "--index-url", "--pypi-url": "--index-url", "-f": "--find-links"}
#: Options that decide what is resolved, and that uv understands in a file.
_KEPT = ("--index-url", "--extra-index-url", "--find-links", "--no-index")
#: Options that decide how it is downloaded and installed.
_IGNORED = (
    "--trusted-host",
    "--require-hashes",
    "--prefer-binary",
    "--use-feature",
    "--only-binary",
    "--no-deps",
)
_FRAGMENT = re.compile(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
#: How the address of a file, a folder or a repository begins.
_PLACE = re.compile(r"[./~]|[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A line that names something to build: a folder, a repository, an archive of sources."""

    #: Normalised name; where the line does not say it, the last part of its address.
    name: str
    #: What it is built from, without credentials.
    source: str
    #: `file:line`.
    place: str
    #: Where the line is meant (PEP 508); empty for everywhere.
    marker: str = ""


@dataclass(slots=True)
class Wanted:
    """Everything that sources ask for."""

    #: Label → bytes of every file that was read.
    files: dict[str, bytes] = field(default_factory=dict)
    #: What a resolver can be asked for.
    lines: list[Line] = field(default_factory=list)
    constraints: list[Line] = field(default_factory=list)
    unbuilt: list[Unbuilt] = field(default_factory=list)
    #: Index options as uv reads them, in the order of reading.
    options: list[str] = field(default_factory=list)
    #: Distributions that are to be built from source; `:all:` for every one.
    no_binary: set[str] = field(default_factory=set)
    prerelease: bool = False
    #: Distribution → name of the index that `settings` ties it to.
    bound: dict[str, str] = field(default_factory=dict)
    #: Settings of uv that decide what is resolved (`lock.uvsettings`).
    settings: Mapping[str, object] = field(default_factory=dict)
    #: A wheel that is not there is something unknown, and no mistake.
    tolerant: bool = False
    problems: list[Problem] = field(default_factory=list)

    def check(self) -> None:
        """Raise `SpecError` with all problems, where there are any."""
        if self.problems:
            raise SpecError(list(dict.fromkeys(self.problems)))


def read_wanted(path: Path, label: str) -> Wanted:
    """Read a requirements file and what it includes; raises `SpecError` with all problems."""
    wanted = Wanted()
    add_file(wanted, path, label)
    wanted.check()
    return wanted


def add_file(wanted: Wanted, path: Path, label: str) -> None:
    """One more requirements file, with what it includes."""
    _read_file(path, label, wanted, False, ())


def add_line(wanted: Wanted, text: str, file: str, number: int, folder: Path) -> None:
    """One requirement; `folder` is what a relative path in it starts from."""
    _requirement(text, file, number, folder, wanted, False)


def _read_file(
    path: Path,
    label: str,
    wanted: Wanted,
    constraint: bool,
    above: tuple[str, ...],
    number: int = 0,
) -> None:
    """`above` are the files that include this one, the last of them in line `number`."""
    if label in above:
        return
    if len(above) > _DEEPEST:
        wanted.problems.append(Problem(f"more than {_DEEPEST} files include one another", label))
        return
    try:
        data = read_bytes(path, label, "check the path", _LARGEST)
        text = decode(data, label)
    except SpecError as error:
        wanted.problems += [_included(one, label, above, number) for one in error.problems]
        return
    wanted.files[label] = data
    indents = [len(line) - len(line.lstrip()) for line in text.splitlines()]
    for number, line, _ in logical_lines(text):
        if include := INCLUDE.fullmatch(line):
            name = include[2].strip("\"' ")
            if "://" in name:
                problem = f"`{redact(name)}` is read from the network"
                hint = "save it beside this file"
                wanted.problems.append(Problem(problem, label, number, hint=hint))
                continue
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(label), name))
            limits = constraint or include[1] in ("-c", "--constraint")
            _read_file(path.parent / name, inner, wanted, limits, (*above, label), number)
        elif editable := _EDITABLE.fullmatch(line):
            _unbuilt("", editable[1], label, number, path.parent, wanted)
        elif line.startswith("-"):
            _option(line, label, number, path.parent, wanted)
        else:
            indent = indents[number - 1]
            _requirement(line, label, number, path.parent, wanted, constraint, indent)


def _included(problem: Problem, label: str, above: tuple[str, ...], number: int) -> Problem:
    """A problem of a file as a whole, at the line that asks for the file."""
    if not above or problem.line is not None:
        return problem
    return Problem(f"{label}: {problem.message}", above[-1], number, hint=problem.hint)


def _option(line: str, label: str, number: int, folder: Path, wanted: Wanted) -> None:
    found = _OPTION.fullmatch(line)
    name = _SHORT.get(found[1], found[1]) if found else line
    value = found[2].strip("\"' ") if found else ""
    if name == "--no-binary":
        wanted.no_binary |= {
            one if one.startswith(":") else canonicalize_name(one)
            for one in re.split(r"[,\s]+", value)
            if one
        }
    elif name == "--pre":
        wanted.prerelease = True
    elif name in _KEPT:
        if name == "--find-links" and "://" not in value:
            value = str((folder / value).resolve())
        wanted.options.append(f"{name} {value}".strip())
    elif name not in _IGNORED:
        problem = f"`{line.split()[0]}` is no option of a requirements file"
        wanted.problems.append(Problem(problem, label, number, hint="see pip's documentation"))


def _requirement(
    line: str,
    label: str,
    number: int,
    folder: Path,
    wanted: Wanted,
    constraint: bool,
    indent: int = 0,
) -> None:
    text = TRAILING_OPTIONS.sub("", line)
    options = line[len(text) :]
    hashes = frozenset(one.lower() for one in SHA256.findall(options))
    if options and not HASHES.fullmatch(options) and "--hash" in options:
        problem = Problem(f"`{options.strip()}` is no option of a requirement", label, number)
        wanted.problems.append(problem)
        return
    if "--hash" in options and not hashes:
        unchecked = "the hashes of this line cannot be checked: none of them is a sha256"
        hint = "write `--hash=sha256:...`, with 64 hex digits"
        wanted.problems.append(Problem(unchecked, label, number, hint=hint))
        return
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if _PLACE.match(text) or ARCHIVE.search(text.split(" ;")[0]):
            _address("", text, label, number, folder, wanted, constraint, hashes)
        else:
            why = str(error).splitlines()[0]
            message = f"`{redact(text)}` is no requirement: {why}"
            column = _column(str(error))
            column = column + indent if column is not None else None
            wanted.problems.append(Problem(message, label, number, column, "see PEP 508"))
        return
    if requirement.url is not None:
        name = canonicalize_name(requirement.name)
        _address(name, text, label, number, folder, wanted, constraint, hashes)
        return
    said = Line(label, number, canonicalize_name(requirement.name), requirement, hashes)
    (wanted.constraints if constraint else wanted.lines).append(said)


def _address(
    name: str,
    text: str,
    label: str,
    number: int,
    folder: Path,
    wanted: Wanted,
    constraint: bool,
    hashes: frozenset[str],
) -> None:
    """A requirement that says where its file is: a wheel can be read there, else it is built."""
    where, _, marker = (text.partition(" @ ")[2] if name else text).partition(" ;")
    where = where.strip()
    extras = ""
    if name:
        asked = Requirement(text)
        where = asked.url or where
        extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
        marker = str(asked.marker or "")
    elif bracket := re.fullmatch(r"(.*\.whl)(\[[^\]]*\])", where):
        where, extras = bracket.groups()
    filename = posixpath.basename(path_in(where))
    if not filename.endswith(".whl"):
        if not constraint:
            _unbuilt(name, where + extras, label, number, folder, wanted, marker.strip())
        return
    try:
        distribution = str(parse_wheel_filename(filename)[0])
    except (InvalidWheelFilename, InvalidVersion) as error:
        problem = Problem(f"`{filename}` is no name of a wheel: {error}", label, number or None)
        wanted.problems.append(problem)
        return
    if "://" not in where:
        path = folder / where.removeprefix("file:")
        if not path.is_file() and wanted.tolerant:
            wanted.unbuilt.append(
                Unbuilt(canonicalize_name(distribution), where, f"{label}:{number}")
            )
            return
        if not path.is_file():
            missing = f"there is no {where}"
            wanted.problems.append(Problem(missing, label, number or None, hint="check the path"))
            return
        where = path.resolve().as_uri()
    behind = f" ; {marker.strip()}" if marker.strip() else ""
    requirement = Requirement(f"{name or distribution}{extras} @ {where}{behind}")
    said = Line(label, number, canonicalize_name(name or distribution), requirement, hashes)
    (wanted.constraints if constraint else wanted.lines).append(said)


def _unbuilt(
    name: str,
    where: str,
    label: str,
    number: int,
    folder: Path,
    wanted: Wanted,
    marker: str = "",
) -> None:
    where = redact(where.strip())
    name = name or _project_in(where, label, folder, wanted)
    egg = _FRAGMENT.search(where)
    path = path_in(where).split("@")[0]
    guess = posixpath.basename(path.rstrip("/")).removesuffix(".git")
    guess = re.sub(r"(\[.*|\.(zip|tar\.gz|tar\.bz2|tgz)$|^\.+$)", "", guess)
    shown = name or (egg[1] if egg else guess) or "local-project"
    if marker:
        try:
            holds(marker, {})
        except BrokenMarker as error:
            problem = f"`{marker}` is no marker: {error}"
            wanted.problems.append(Problem(problem, label, number, hint="see PEP 508"))
            return
    wanted.unbuilt.append(Unbuilt(canonicalize_name(shown), where, f"{label}:{number}", marker))


def _project_in(where: str, label: str, folder: Path, wanted: Wanted) -> str:
    """The name of the project in a local folder; what it says that it requires is added.

    Empty where there is none, or where only its build would tell.
    """
    found = re.fullmatch(r"([^\[\]:]+?)/?(?:\[([^\]]*)\])?", where.removeprefix("file:"))
    if found is None or not (folder / found[1] / "pyproject.toml").is_file():
        return ""
    inside = posixpath.join(posixpath.dirname(label), found[1], "pyproject.toml")
    project = read_project(folder / found[1] / "pyproject.toml", posixpath.normpath(inside))
    table = mapping(project.document.get("project"))
    wanted.files[project.label] = project.data
    wanted.problems += project.problems
    if not {"dependencies", "optional-dependencies"} & set(strings(table.get("dynamic"))):
        extras = {canonicalize_name(one.strip()) for one in (found[2] or "").split(",")}
        for said in project.said:
            if said.part in {"", *extras}:
                add_line(wanted, said.text, project.label, said.line, folder / found[1])
    return string(table.get("name"))


def _column(error: str) -> int | None:
    """Where packaging's caret stands below the line that it shows, from 1."""
    caret = next((line for line in error.splitlines() if line.rstrip().endswith("^")), "")
    return caret.index("^") - 3 if caret.startswith("    ") else None


def applies(line: Line | Unbuilt, environment: Mapping[str, str]) -> bool:
    """Whether a line is meant in an environment (PEP 508)."""
    marker = line.marker if isinstance(line, Unbuilt) else line.requirement.marker
    return not marker or holds(str(marker), environment)
