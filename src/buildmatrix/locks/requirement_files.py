"""The one reader of requirements files and of what they include.

An audit and a lock for an image read the same, and judge lines differently. An image is built from
its lock alone, so what lies on this machine is a mistake there (`Wanted.for_image`); for an audit
it stands for something that nobody knows before it is built.
Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.environment import Item, is_environment, read_environment
from buildmatrix.locks.lines import (
    ARCHIVE,
    HASHES,
    INCLUDE,
    MOST_LINES,
    SHA256,
    TRAILING_OPTIONS,
    LocatedRequirement,
    Place,
    RequirementLine,
    bare_address,
    expand_variables,
    logical_lines,
    named_address,
    option_in,
    parse_requirement,
    too_many,
)
from buildmatrix.locks.markers import BrokenMarker, holds
from buildmatrix.locks.projects import Project, expand, read_project, under
from buildmatrix.locks.text import decode, mapping, read_bytes, strings
from buildmatrix.locks.wanted import Unbuilt, Wanted
from buildmatrix.parsing import parse_wheel_name
from buildmatrix.text import without_login
from buildmatrix.urls import path_in

#: Far above any real requirements file: 1000 pins with twenty hashes each are 2 MB.
_LARGEST = 16 * 1024 * 1024
#: Files that one may include, one within the other, and in all.
_DEEPEST = 30
_MOST_FILES = 1000
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S.*)")
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
#: sha256 of the file, as pip and `pip freeze` write it behind an address.
_FRAGMENT_HASH = re.compile(r"[#&]sha256=([0-9A-Fa-f]{64})(?![0-9A-Fa-f])")
#: How the address of a file, a folder or a repository begins.
_PLACE = re.compile(r"[./~]|[A-Za-z][A-Za-z0-9+.-]*:|[^\s;@\[\]]+/")
#: Lines of what `conda list --explicit` and `conda list --export` write.
_CONDA = re.compile(r"@EXPLICIT|[A-Za-z0-9_][A-Za-z0-9_.-]*=[^=\s;@]+=[^=\s;@]+")


def read_wanted(path: Path, label: str) -> Wanted:
    """Read a requirements file and what it includes; raises `SpecError` with all problems."""
    wanted = Wanted()
    add_file(wanted, path, label)
    check(wanted)
    return wanted


def check(wanted: Wanted) -> None:
    """To be called when all was added. Raises `SpecError` with all problems, if there are any.

    Only now it is known which projects lie in local folders.
    """
    _expand_local(wanted)
    if wanted.problems:
        raise SpecError(list(dict.fromkeys(wanted.problems)))


def add_file(wanted: Wanted, path: Path, label: str) -> None:
    """One more requirements file, with what it includes.

    Raises `SpecError` for more than any real one holds.
    """
    _read_file(path, label, wanted, False, ())


def add_line(wanted: Wanted, text: str, file: str, number: int, folder: Path) -> None:
    """One requirement; `folder` is what a relative path in it starts from."""
    _requirement(text, Place(file, number, folder), wanted)


def _read_file(
    path: Path,
    label: str,
    wanted: Wanted,
    constraint: bool,
    above: tuple[str, ...],
    number: int = 0,
) -> None:
    """`above` are the files that include this one, the last of them in line `number`."""
    if (label, constraint) in wanted.begun:
        return
    wanted.begun.add((label, constraint))
    if len(above) > _DEEPEST or len(wanted.begun) > _MOST_FILES:
        most = f"{_DEEPEST} files include one another"
        if len(above) <= _DEEPEST:
            most = f"{_MOST_FILES} files are included"
        raise SpecError([Problem(f"more than {most}", label)])
    try:
        data = read_bytes(path, label, "check the path", _LARGEST)
        text = decode(data, label)
    except SpecError as error:
        wanted.problems += [_included(one, label, above, number) for one in error.problems]
        return
    wanted.files[label] = data
    # uv would not read one for an image, and what conda installs would be missing from it.
    is_conda = not above and not wanted.for_image and is_environment(label)
    for item in _of_environment(text, label, wanted) if is_conda else _of_requirements(text):
        number, line = item.line, item.text
        place = Place(label, number, path.parent, constraint, item.indent)
        if wanted.for_image and (problem := _unfit(item, place)):
            wanted.problems.append(problem)
        elif include := INCLUDE.fullmatch(line):
            name = expand_variables(include[2].strip("\"' "))
            if "://" in name:
                message = f"`{without_login(name)}` is read from the network"
                wanted.problems.append(place.problem(message, hint="save it beside this file"))
                continue
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(label), name))
            limits = constraint or include[1] in ("-c", "--constraint")
            _read_file(path.parent / name, inner, wanted, limits, (*above, label), number)
        elif editable := _EDITABLE.fullmatch(line):
            _editable(editable[1], place, wanted)
        elif _CONDA.fullmatch(line):
            message = "this is conda's list of packages, which audit does not read"
            hint = "create the environment and run `buildmatrix scan dir:PREFIX`"
            wanted.problems.append(place.problem(message, hint=hint))
            return
        elif line.startswith("-"):
            _option(line, place, wanted)
        else:
            _requirement(line, place, wanted)


def _of_requirements(text: str) -> Iterator[Item]:
    """The lines of a requirements file."""
    physical = text.splitlines()
    for number, line, joined in logical_lines(text):
        first = physical[number - 1]
        yield Item(line, number, len(first) - len(first.lstrip()), joined)


def _of_environment(text: str, label: str, wanted: Wanted) -> Iterator[Item]:
    """The lines that conda hands to pip; what conda installs itself is noted."""
    environment = read_environment(text, label)
    wanted.unread += environment.unread(label)
    wanted.conda += environment.packages(label)
    yield from environment.pip_lines()


def _unfit(item: Item, place: Place) -> Problem | None:
    """What no lock for an image can be made of: uv reads the line otherwise, or refuses it."""
    if item.joined:
        problem = "this line goes on in the next one, and only its hashes can"
        return place.problem(problem, hint="write it in one line")
    if _EDITABLE.fullmatch(item.text):
        return _on_this_machine(item.text, place)
    if item.text == "--require-hashes":
        hint = "take it out: the hashes of a line are checked, and every locked file has one"
        return place.problem("`--require-hashes` cannot be obeyed", hint=hint)
    return None


def _on_this_machine(text: str, place: Place) -> Problem:
    problem = f"`{text}` is on this machine, and the image is built from the lock alone"
    hint = "publish it as a wheel, or bring source code into the image with `copy`"
    return place.problem(problem, hint=hint)


def _included(problem: Problem, label: str, above: tuple[str, ...], number: int) -> Problem:
    """A problem of a file as a whole, at the line that asks for the file."""
    if not above or problem.line is not None:
        return problem
    return Problem(f"{label}: {problem.message}", above[-1], number, hint=problem.hint)


def _option(line: str, place: Place, wanted: Wanted) -> None:
    name, value = option_in(line)
    if name == "--no-binary":
        wanted.no_binary |= {
            part if part.startswith(":") else canonicalize_name(part)
            for part in re.split(r"[,\s]+", value)
            if part
        }
    elif name == "--pre":
        wanted.prerelease = True
    elif name in _KEPT:
        if name == "--find-links" and "://" not in value:
            value = str((place.folder / expand_variables(value)).resolve())
        wanted.options.append(f"{name} {value}".strip())
    elif name not in _IGNORED and not wanted.for_image:
        problem = f"`{line.split()[0]}` is no option of a requirements file"
        wanted.problems.append(place.problem(problem, hint="see pip's documentation"))


def _requirement(line: str, place: Place, wanted: Wanted) -> None:
    text = TRAILING_OPTIONS.sub("", line)
    options = line[len(text) :]
    hashes = frozenset(one.lower() for one in SHA256.findall(options))
    strict = wanted.for_image or "--hash" in options
    if options and strict and not HASHES.fullmatch(options):
        problem = f"`{options.strip()}` is no option of a requirement"
        hint = "only `--hash=sha256:...` can be here" if wanted.for_image else None
        wanted.problems.append(place.problem(problem, hint=hint))
        return
    if "--hash" in options and not hashes:
        unchecked = "the hashes of this line cannot be checked: none of them is a sha256"
        hint = "write `--hash=sha256:...`, with 64 hex digits"
        wanted.problems.append(place.problem(unchecked, hint=hint))
        return
    if address := named_address(text):
        _address(address, place, wanted, hashes)
        return
    try:
        # A lock depends on the bytes of files, and not on variables of this machine.
        requirement = parse_requirement(text if wanted.for_image else expand_variables(text))
    except InvalidRequirement as error:
        address = bare_address(text)
        if _PLACE.match(text) or ARCHIVE.search(address.where):
            _address(address, place, wanted, hashes)
            return
        why = str(error).splitlines()[0]
        message = f"`{without_login(text)}` is no requirement: {why}"
        column = _column(str(error))
        column = column + place.indent if column is not None else None
        wanted.problems.append(place.problem(message, column, "see PEP 508"))
        return
    _add(requirement, place, wanted, hashes)


def _add(
    requirement: Requirement, place: Place, wanted: Wanted, hashes: frozenset[str] = frozenset()
) -> None:
    if len(wanted.lines) + len(wanted.constraints) >= MOST_LINES:
        raise SpecError([too_many(place.label)])
    name = canonicalize_name(requirement.name)
    said = RequirementLine(place.label, place.number, name, requirement, hashes)
    (wanted.constraints if place.constraint else wanted.lines).append(said)


def _address(
    address: LocatedRequirement, place: Place, wanted: Wanted, hashes: frozenset[str]
) -> None:
    """A requirement that says where its file is: a wheel can be read there, else it is built."""
    name, where = address.name, address.where
    if wanted.for_image:
        _address_for_image(address, place, wanted, hashes)
        return
    meant = expand_variables(where)
    if problem := _no_marker(address.marker):
        wanted.problems.append(place.problem(problem, hint="see PEP 508"))
        return
    filename = posixpath.basename(path_in(meant))
    if not filename.endswith(".whl"):
        if not place.constraint:
            _unbuilt(address, place, wanted)
        return
    try:
        distribution = str(parse_wheel_name(filename)[0])
    except (InvalidWheelFilename, InvalidVersion) as error:
        wanted.problems.append(place.problem(f"`{filename}` is no name of a wheel: {error}"))
        return
    if _is_local(meant):
        path = place.folder / _local_path(meant)
        if not path.is_file() and wanted.tolerant:
            unbuilt = Unbuilt(canonicalize_name(distribution), where, str(place))
            wanted.unbuilt.append(unbuilt)
            return
        if not path.is_file():
            missing = f"there is no {where}"
            wanted.problems.append(place.problem(missing, hint="check the path"))
            return
        where = path.resolve().as_uri()
    if found := _FRAGMENT_HASH.search(meant):
        hashes |= {found[1].lower()}
    _add_at(replace(address, name=name or distribution, where=where), place, wanted, hashes)


def _address_for_image(
    address: LocatedRequirement, place: Place, wanted: Wanted, hashes: frozenset[str]
) -> None:
    """The same in a lock: uv takes what has no name here from the metadata behind the address."""
    if _is_local(address.where):
        wanted.problems.append(_on_this_machine(str(address), place))
    elif address.name:
        _add_at(address, place, wanted, hashes)
    elif hashes:
        problem = "the hashes of this line cannot be checked: it names no distribution"
        wanted.problems.append(place.problem(problem, hint="write `NAME @ URL`"))


def _add_at(
    address: LocatedRequirement, place: Place, wanted: Wanted, hashes: frozenset[str]
) -> None:
    try:
        requirement = parse_requirement(str(address))
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        message = f"`{without_login(str(address))}` is no requirement: {why}"
        wanted.problems.append(place.problem(message, hint="see PEP 508"))
        return
    _add(requirement, place, wanted, hashes)


def _editable(text: str, place: Place, wanted: Wanted) -> None:
    """`-e ADDRESS`, where pip and uv allow a name, extras, a marker and quotes around all."""
    text = TRAILING_OPTIONS.sub("", text).strip()
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1]
    address = named_address(text) or bare_address(text)
    if problem := _no_marker(address.marker):
        wanted.problems.append(place.problem(problem, hint="see PEP 508"))
    elif not place.constraint:
        _unbuilt(address, place, wanted)


def _no_marker(text: str) -> str | None:
    """What is wrong with a marker."""
    try:
        holds(text, {})
    except BrokenMarker as error:
        return f"`{text}` is no marker: {error}"
    return None


def _is_local(where: str) -> bool:
    """Whether an address is a path, or the URL of one."""
    return "://" not in where or where.startswith("file:")


def _local_path(where: str) -> str:
    """The path in `file:...`, of which a URL may have its percent signs; any other as it is."""
    if not where.startswith("file:"):
        return where.split("#", 1)[0]
    return path_in(where)


def _unbuilt(address: LocatedRequirement, place: Place, wanted: Wanted) -> None:
    where = without_login(address.where + address.bracket)
    name = address.name or _egg(where)
    meant = expand_variables(address.where)
    if _is_local(meant):
        project = _project_in(_local_path(meant), place, wanted)
        name = name or (project.name if project is not None else "")
        if project is not None:
            folder = place.folder / _local_path(meant)
            wanted.local[canonicalize_name(name)] = project, folder
            extras = set(map(canonicalize_name, address.extras))
            _add_parts(project, {"", *extras}, folder, address.marker, wanted)
    path = path_in(where).split("@")[0]
    guess = posixpath.basename(path.rstrip("/")).removesuffix(".git")
    guess = re.sub(r"(\[.*|\.(zip|tar\.gz|tar\.bz2|tgz)$)", "", guess).strip("._-")
    shown = canonicalize_name(name or guess or "local-project")
    wanted.unbuilt.append(Unbuilt(shown, where, str(place), address.marker))


def _egg(where: str) -> str:
    found = _FRAGMENT.search(where)
    return found[1] if found else ""


def _project_in(where: str, place: Place, wanted: Wanted) -> Project | None:
    """The project in a local folder; None where there is none."""
    path = place.folder / where / "pyproject.toml"
    if not path.is_file():
        return None
    inside = posixpath.join(posixpath.dirname(place.label), where, "pyproject.toml")
    project = read_project(path, posixpath.normpath(inside))
    wanted.files[project.label] = project.data
    wanted.problems += project.problems
    return project


def _add_parts(
    project: Project, parts: Collection[str], folder: Path, marker: str, wanted: Wanted
) -> None:
    """What a local project says that it requires; nothing where only its build would tell."""
    table = mapping(project.document.get("project"))
    if {"dependencies", "optional-dependencies"} & set(strings(table.get("dynamic"))):
        return
    for said in expand(project, parts):
        text = str(under(said.requirement, [marker])) if marker else said.text
        add_line(wanted, text, project.label, said.line, folder)


def _expand_local(wanted: Wanted) -> None:
    """Requirements that name a project which is asked for as a folder, too: that one is meant.

    Its extras are expanded in it, as pip and uv do, and nothing of it is asked of an index.
    """
    kept: list[RequirementLine] = []
    queue = wanted.lines
    for _ in range(_DEEPEST):
        wanted.lines = []
        for line in queue:
            if line.name not in wanted.local or line.requirement.url is not None:
                kept.append(line)
            elif line.requirement.extras:
                project, folder = wanted.local[line.name]
                extras = set(map(canonicalize_name, line.requirement.extras))
                marker = str(line.requirement.marker or "")
                _add_parts(project, extras, folder, marker, wanted)
        queue = wanted.lines
        if not queue:
            break
    else:
        wanted.problems.append(
            Problem("its extras ask for one another without end", queue[0].file, queue[0].line)
        )
    wanted.lines = kept


def _column(error: str) -> int | None:
    """Where packaging's caret stands below the line that it shows, from 1."""
    caret = next((line for line in error.splitlines() if line.rstrip().endswith("^")), "")
    return caret.index("^") - 3 if caret.startswith("    ") else None
