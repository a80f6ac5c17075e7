"""The one reader of requirements files and of what they include.

An audit and a lock for an image read the same lines and judge them differently. An image is built
from its lock alone, so a path on this machine is a mistake there (`RequirementSet.for_image`). For
an audit it names a distribution that is unknown until it is built.
Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.environment import Item, is_environment, read_environment
from buildmatrix.locks.lines import (
    INCLUDE,
    Place,
    expand_variables,
    logical_lines,
    option_in,
)
from buildmatrix.locks.requirement_lines import (
    add_editable,
    add_requirement,
    expand_local,
    on_this_machine,
)
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.text import BYTE_ORDER_MARKS, decode, read_bytes
from buildmatrix.text import without_login

#: Far above any real requirements file: 1000 pins with twenty hashes each are 2 MB.
_LARGEST = 16 * 1024 * 1024
#: Files that one may include, one within the other, and in all.
_DEEPEST = 30
_MOST_FILES = 1000
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S.*)")
#: Options that decide what is resolved, and that uv understands in a file.
_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--no-index")
#: Options that decide how it is downloaded and installed.
_IGNORED = (
    "--trusted-host",
    "--require-hashes",
    "--prefer-binary",
    "--use-feature",
    "--only-binary",
    "--no-deps",
)
#: Lines of what `conda list --explicit` and `conda list --export` write.
_CONDA = re.compile(r"@EXPLICIT|[A-Za-z0-9_][A-Za-z0-9_.-]*=[^=\s;@]+=[^=\s;@]+")


def read_requirements(path: Path, label: str) -> RequirementSet:
    """Read a requirements file and what it includes; raises `SpecError` with all problems."""
    requirements = RequirementSet()
    add_file(requirements, path, label)
    check(requirements)
    return requirements


def check(requirements: RequirementSet) -> None:
    """To be called when all was added. Raises `SpecError` with all problems, if there are any.

    Only now it is known which projects lie in local folders.
    """
    expand_local(requirements)
    if requirements.problems:
        raise SpecError(list(dict.fromkeys(requirements.problems)))


def add_file(requirements: RequirementSet, path: Path, label: str) -> None:
    """One more requirements file, with what it includes.

    Raises `SpecError` for more than any real one holds.
    """
    _read_file(path, label, requirements, False, ())


def _read_file(
    path: Path,
    label: str,
    requirements: RequirementSet,
    constraint: bool,
    above: tuple[str, ...],
    number: int = 0,
) -> None:
    """`above` are the files that include this one, the last of them in line `number`."""
    if (label, constraint) in requirements.begun:
        return
    requirements.begun.add((label, constraint))
    if len(above) > _DEEPEST or len(requirements.begun) > _MOST_FILES:
        most = f"{_DEEPEST} files include one another"
        if len(above) <= _DEEPEST:
            most = f"{_MOST_FILES} files are included"
        raise SpecError([Problem(f"more than {most}", label)])
    try:
        data = read_bytes(path, label, "check the path", _LARGEST)
        text = decode(data, label, BYTE_ORDER_MARKS)
    except SpecError as error:
        requirements.problems += [
            _included(problem, label, above, number) for problem in error.problems
        ]
        return
    requirements.files[label] = data
    # uv would not read one for an image, and what conda installs would be missing from it.
    is_conda = not above and not requirements.for_image and is_environment(label)
    for item in (
        _environment_items(text, label, requirements) if is_conda else _requirement_items(text)
    ):
        number, line = item.line, item.text
        place = Place(label, number, path.parent, constraint, item.indent)
        if requirements.for_image and (unfit := _unfit(item, place)):
            requirements.problems.append(unfit)
        elif include := INCLUDE.fullmatch(line):
            name = expand_variables(include[2].strip("\"' "))
            if "://" in name:
                message = f"`{without_login(name)}` is read from the network"
                requirements.problems.append(
                    place.problem(message, hint="save it beside this file")
                )
                continue
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(label), name))
            limits = constraint or include[1] in ("-c", "--constraint")
            _read_file(path.parent / name, inner, requirements, limits, (*above, label), number)
        elif editable := _EDITABLE.fullmatch(line):
            add_editable(editable[1], place, requirements)
        elif _CONDA.fullmatch(line):
            message = "this is conda's list of packages, which audit does not read"
            hint = "create the environment and run `buildmatrix scan dir:PREFIX`"
            requirements.problems.append(place.problem(message, hint=hint))
            return
        elif line.startswith("-"):
            _option(line, place, requirements)
        else:
            add_requirement(line, place, requirements)


def _requirement_items(text: str) -> Iterator[Item]:
    """The lines of a requirements file."""
    physical = text.splitlines()
    for number, line, joined in logical_lines(text):
        first = physical[number - 1]
        yield Item(line, number, len(first) - len(first.lstrip()), joined)


def _environment_items(text: str, label: str, requirements: RequirementSet) -> Iterator[Item]:
    """The lines that conda hands to pip; what conda installs itself is noted."""
    environment = read_environment(text, label)
    requirements.unread += environment.unread(label)
    requirements.conda += environment.packages(label)
    yield from environment.pip_lines()


def _unfit(item: Item, place: Place) -> Problem | None:
    """What no lock for an image can be made of: uv reads the line otherwise, or refuses it."""
    if item.joined:
        problem = "this line goes on in the next one, and only its hashes can"
        return place.problem(problem, hint="write it in one line")
    if _EDITABLE.fullmatch(item.text):
        return on_this_machine(item.text, place)
    if item.text == "--require-hashes":
        hint = "take it out: the hashes of a line are checked, and every locked file has one"
        return place.problem("`--require-hashes` cannot be obeyed", hint=hint)
    return None


def _included(problem: Problem, label: str, above: tuple[str, ...], number: int) -> Problem:
    """A problem of a file as a whole, at the line that asks for the file."""
    if not above or problem.line is not None:
        return problem
    return Problem(f"{label}: {problem.message}", above[-1], number, hint=problem.hint)


def _option(line: str, place: Place, requirements: RequirementSet) -> None:
    name, value = option_in(line)
    if name == "--no-binary":
        requirements.no_binary |= {
            part if part.startswith(":") else canonicalize_name(part)
            for part in re.split(r"[,\s]+", value)
            if part
        }
    elif name == "--pre":
        requirements.prerelease = True
    elif name in _INDEX_OPTIONS:
        if name == "--find-links" and "://" not in value:
            value = str((place.folder / expand_variables(value)).resolve())
        requirements.options.append(f"{name} {value}".strip())
    elif name not in _IGNORED and not requirements.for_image:
        problem = f"`{line.split()[0]}` is not an option of requirements files"
        requirements.problems.append(place.problem(problem, hint="see pip's documentation"))
