"""What a target asks for, line by line: requirement files, their includes, `pyproject.toml`.

uv reads the same files itself. They are read here to know which bytes a lock depends on, to give
every locked package the line to blame, and to report a mistake with its place.
Format: pip's requirements file (https://pip.pypa.io/en/stable/reference/requirements-file-format/)
and the `[project]` table (https://packaging.python.org/en/latest/specifications/pyproject-toml/).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name

from buildmatrix import toml
from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.lines import (
    ARCHIVE,
    HASHES,
    INCLUDE,
    MOST_LINES,
    SHA256,
    TRAILING_OPTIONS,
    Line,
    logical_lines,
    option_in,
    parse_requirement,
    too_many,
)
from buildmatrix.locks.projects import expand, read_project
from buildmatrix.parsing import parse_specifiers
from buildmatrix.spec.model import Target

_EDITABLE = re.compile(r"(-e|--editable)\b")


@dataclass(slots=True)
class Asked:
    """Everything that a target asks for."""

    #: Every file that was read, in the order of reading, relative to the specification.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Requirements, without constraints and lines that name no distribution.
    lines: list[Line] = field(default_factory=list)
    #: Requirements and constraints that say which hashes they allow.
    hashed: list[Line] = field(default_factory=list)
    #: Options of the files, `--index-url URL`.
    options: list[str] = field(default_factory=list)
    #: Files that were begun, each with whether as constraints: the two readings differ.
    begun: set[tuple[str, bool]] = field(default_factory=set)


def read_asked(root: Path, target: Target) -> Asked:
    """Read the requirement files and the `pyproject.toml` of `target`.

    Raises `SpecError` with all problems: a file that is missing or is no text, a line that is no
    requirement, a requirement that names something on this machine, a `pyproject.toml` that does
    not say what it requires or does not support the target's Python.
    """
    asked = Asked()
    problems: list[Problem] = []
    for file in target.requirements:
        _read_file(root, posixpath.normpath(file), asked, problems, constraint=False)
    if target.pyproject is not None:
        _read_pyproject(root, posixpath.normpath(target.pyproject), target, asked, problems)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return asked


def _read_file(
    root: Path, file: str, asked: Asked, problems: list[Problem], *, constraint: bool
) -> None:
    if (file, constraint) in asked.begun:
        return
    asked.begun.add((file, constraint))
    text = _text(root, file, asked, problems)
    if text is None:
        return
    for number, line, joined in logical_lines(text):
        include = INCLUDE.fullmatch(line)
        if joined:
            problem = "this line goes on in the next one, and only its hashes can"
            problems.append(Problem(problem, file, number, hint="write it in one line"))
        elif include is not None:
            option, name = include.group(1), include.group(2).strip("\"' ")
            if "://" in name:
                problem = f"`{name}` is read from the network, so a lock cannot follow it"
                problems.append(Problem(problem, file, number, hint="save it beside this file"))
                continue
            name = posixpath.normpath(posixpath.join(posixpath.dirname(file), name))
            _read_file(
                root,
                name,
                asked,
                problems,
                constraint=constraint or option in ("-c", "--constraint"),
            )
        elif _EDITABLE.match(line):
            problems.append(_local(line, file, number))
        elif line == "--require-hashes":
            hint = "take it out: the hashes of a line are checked, and every locked file has one"
            problems.append(Problem("`--require-hashes` cannot be obeyed", file, number, hint=hint))
        elif line.startswith("-"):
            asked.options.append(" ".join(option_in(line)))
        else:
            _read_line(line, file, number, asked, problems, constraint=constraint)


def _read_line(
    line: str, file: str, number: int, asked: Asked, problems: list[Problem], *, constraint: bool
) -> None:
    text = TRAILING_OPTIONS.sub("", line)
    options = line[len(text) :]
    hashes = frozenset(found.lower() for found in SHA256.findall(options))
    if options and not HASHES.fullmatch(options):
        problem = f"`{options.strip()}` is no option of a requirement"
        problems.append(Problem(problem, file, number, hint="only `--hash=sha256:...` can be here"))
        return
    if options and not hashes:
        problem = "the hashes of this line cannot be checked: none of them is a sha256"
        problems.append(Problem(problem, file, number, hint="write `--hash=sha256:...`"))
        return
    try:
        requirement = parse_requirement(text)
    except InvalidRequirement as error:
        if "://" in text and not text.startswith("file:"):
            if hashes:
                problem = "the hashes of this line cannot be checked: it names no distribution"
                problems.append(Problem(problem, file, number, hint="write `NAME @ URL`"))
            return  # A bare URL: uv takes the name from the metadata behind it.
        if text.startswith((".", "/", "~", "file:")) or ARCHIVE.search(text):
            problems.append(_local(text, file, number))
        else:
            why = str(error).splitlines()[0]
            problems.append(
                Problem(f"`{text}` is no requirement: {why}", file, number, hint="see PEP 508")
            )
        return
    url = requirement.url
    if url is not None and (url.startswith("file:") or "://" not in url):
        problems.append(_local(text, file, number))
        return
    said = Line(file, number, canonicalize_name(requirement.name), requirement, hashes)
    if len(asked.lines) + len(asked.hashed) >= MOST_LINES:
        raise SpecError([too_many(file)])
    if not constraint:
        asked.lines.append(said)
    if hashes:
        asked.hashed.append(said)


def _read_pyproject(
    root: Path, file: str, target: Target, asked: Asked, problems: list[Problem]
) -> None:
    text = _text(root, file, asked, problems)
    if text is None:
        return
    try:
        project = toml.loads(text).get("project")
    except toml.TomlError as error:
        problems.append(Problem(f"this is no TOML: {error}", file))
        return
    if not isinstance(project, dict):
        hint = "write one, or name a requirements file instead"
        problems.append(Problem("there is no table `[project]`", file, hint=hint))
        return
    wrong = list(_problems_of_project(project, target, file, text))
    problems += wrong
    if wrong:
        return
    optional = {
        canonicalize_name(key): value for key, value in _table(project, "optional-dependencies")
    }
    wanted = [*_strings(project.get("dependencies"))]
    for extra in target.extras:
        if canonicalize_name(extra) not in optional:
            known = ", ".join(sorted(optional)) or "none"
            problems.append(
                Problem(f"there is no extra `{extra}`", file, hint=f"extras here: {known}")
            )
            continue
        wanted += _strings(optional[canonicalize_name(extra)])
    try:
        read = read_project(root / file, file)
        said = expand(read, {"", *map(canonicalize_name, target.extras)})
    except SpecError as error:
        problems += error.problems
        return
    valid = {one.text for one in read.said}
    for text_of in wanted:
        if text_of not in valid:
            _read_line(text_of, file, _line_of(text_of, text), asked, problems, constraint=False)
    for one in said:
        _read_line(one.text, file, one.line, asked, problems, constraint=False)


def _problems_of_project(
    project: dict[str, object], target: Target, file: str, text: str
) -> Iterator[Problem]:
    """What keeps a `[project]` table from saying what `target` is to install."""
    dynamic = _strings(project.get("dynamic"))
    for key in ("name", "version"):
        if not isinstance(project.get(key), str) and (key == "name" or key not in dynamic):
            line = _line_of_key(key if key in project else None, text)
            problem = f"`[project]` needs a `{key}` that is a string"
            yield Problem(problem, file, line, hint=f'write `{key} = "..."`')
    for key in ("dependencies", *(["optional-dependencies"] if target.extras else [])):
        if key in dynamic:
            problem = f"`{key}` is dynamic, so this file does not say what to install"
            hint = f"write `{key}` here, or name a requirements file instead"
            yield Problem(problem, file, _line_of_key("dynamic", text), hint=hint)
    lists = [("dependencies", project.get("dependencies", []))]
    optional = project.get("optional-dependencies", {})
    if isinstance(optional, dict):
        lists += optional.items()
    else:
        line = _line_of_key("optional-dependencies", text)
        hint = "write `[project.optional-dependencies]`"
        yield Problem("`optional-dependencies` is no table", file, line, hint=hint)
    for key, value in lists:
        if not isinstance(value, list) or len(_strings(value)) != len(value):
            hint = f'write `{key} = ["..."]`'
            problem = f"`{key}` is no array of strings"
            yield Problem(problem, file, _line_of_key(key, text), hint=hint)
    wanted = project.get("requires-python", "")
    line = _line_of_key("requires-python", text)
    try:
        pythons = parse_specifiers(wanted) if isinstance(wanted, str) else None
    except InvalidSpecifier:
        pythons = None
    if pythons is None:
        problem, hint = f"`requires-python` is {wanted!r}", 'write `requires-python = ">=3.11"`'
        yield Problem(f"{problem}, and must be a version specifier", file, line, hint=hint)
    elif not any(pythons.contains(f"{target.python}.{patch}") for patch in range(100)):
        problem = f"`requires-python` is `{wanted}`, and {target.id} has Python {target.python}"
        hint = f"allow {target.python} here, or exclude the target"
        yield Problem(problem, file, line, hint=hint)


def _text(root: Path, file: str, asked: Asked, problems: list[Problem]) -> str | None:
    try:
        data = (root / file).read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.append(Problem("this is no UTF-8 text", file, hint="save the file as UTF-8"))
        return None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problems.append(
            Problem(f"cannot be read: {why}", file, hint="check `requirements` and `pyproject`")
        )
        return None
    asked.files[file] = data
    return text


def _local(text: str, file: str, number: int) -> Problem:
    return Problem(
        f"`{text}` is on this machine, and the image is built from the lock alone",
        file,
        number,
        hint="publish it as a wheel, or bring source code into the image with `copy`",
    )


def _line_of(requirement: str, text: str) -> int:
    for number, line in enumerate(text.splitlines(), 1):
        if f'"{requirement}"' in line or f"'{requirement}'" in line:
            return number
    return 1


def _line_of_key(key: str | None, text: str) -> int | None:
    """The first line that sets `key` or is the table of that name."""
    if key is None:
        return None
    sets = re.compile(rf"""\s*(\[\s*project\s*\.\s*)?["']?{re.escape(key)}["']?\s*[\]=]""")
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if sets.match(line)), None)


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _table(value: object, key: str) -> list[tuple[str, object]]:
    inner = value.get(key) if isinstance(value, dict) else None
    return list(inner.items()) if isinstance(inner, dict) else []


def relative_label(path: str, root: Path) -> str:
    """`path` as uv names it (relative to `root`, or absolute) in the form of `Line.file`."""
    return posixpath.normpath(os.path.relpath(root / path, root))
