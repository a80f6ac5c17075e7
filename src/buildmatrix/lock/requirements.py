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
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.spec.model import Target

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(\S.*)")
_EDITABLE = re.compile(r"(-e|--editable)\b")
#: Options behind a requirement, `--hash=sha256:...`.
_TRAILING_OPTIONS = re.compile(r"\s--?[a-z].*$")
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tar\.bz2|tgz)$")


@dataclass(frozen=True, slots=True)
class Line:
    """One requirement of a user's file."""

    file: str
    line: int
    #: Normalised name of the distribution.
    name: str
    requirement: Requirement

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Asked:
    """Everything that a target asks for."""

    #: Every file that was read, in the order of reading, relative to the specification.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Requirements, without constraints and lines that name no distribution.
    lines: list[Line] = field(default_factory=list)


def read_asked(root: Path, target: Target) -> Asked:
    """Read the requirement files and the `pyproject.toml` of `target`.

    Raises `SpecError` with all problems: a file that is missing or is no text, a line that is no
    requirement, a requirement that names something on this machine.
    """
    asked = Asked()
    problems: list[Problem] = []
    for file in target.requirements:
        _read_file(root, posixpath.normpath(file), asked, problems, constraint=False)
    if target.pyproject is not None:
        _read_pyproject(root, posixpath.normpath(target.pyproject), target, asked, problems)
    if problems:
        raise SpecError(problems)
    return asked


def _read_file(
    root: Path, file: str, asked: Asked, problems: list[Problem], *, constraint: bool
) -> None:
    if file in asked.files:
        return
    text = _text(root, file, asked, problems)
    if text is None:
        return
    for number, line in _logical_lines(text):
        include = _INCLUDE.fullmatch(line)
        if include is not None:
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
        elif not line.startswith("-"):
            _read_line(line, file, number, asked, problems, constraint=constraint)


def _read_line(
    line: str, file: str, number: int, asked: Asked, problems: list[Problem], *, constraint: bool
) -> None:
    text = _TRAILING_OPTIONS.sub("", line)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if "://" in text and not text.startswith("file:"):
            return  # A bare URL: uv takes the name from the metadata behind it.
        if text.startswith((".", "/", "~", "file:")) or _ARCHIVE.search(text):
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
    elif not constraint:
        asked.lines.append(Line(file, number, canonicalize_name(requirement.name), requirement))


def _read_pyproject(
    root: Path, file: str, target: Target, asked: Asked, problems: list[Problem]
) -> None:
    text = _text(root, file, asked, problems)
    if text is None:
        return
    try:
        project = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError as error:
        problems.append(Problem(f"this is no TOML: {error}", file))
        return
    optional = {
        canonicalize_name(key): value for key, value in _table(project, "optional-dependencies")
    }
    wanted = [*_strings(project.get("dependencies") if isinstance(project, dict) else None)]
    for extra in target.extras:
        if canonicalize_name(extra) not in optional:
            known = ", ".join(sorted(optional)) or "none"
            problems.append(
                Problem(f"there is no extra `{extra}`", file, hint=f"extras here: {known}")
            )
            continue
        wanted += _strings(optional[canonicalize_name(extra)])
    for requirement in wanted:
        number = _line_of(requirement, text)
        _read_line(requirement, file, number, asked, problems, constraint=False)


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


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continuations joined, each with the number of its first part."""
    start, parts = 1, list[str]()
    for number, physical in enumerate(text.splitlines(), 1):
        if not parts:
            start = number
        if physical.endswith("\\") and not physical.lstrip().startswith("#"):
            parts.append(physical[:-1])
            continue
        line = _COMMENT.sub("", "".join([*parts, physical])).strip()
        parts = []
        if line:
            yield start, line
    if joined := _COMMENT.sub("", "".join(parts)).strip():
        yield start, joined


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


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _table(value: object, key: str) -> list[tuple[str, object]]:
    inner = value.get(key) if isinstance(value, dict) else None
    return list(inner.items()) if isinstance(inner, dict) else []


def relative_label(path: str, root: Path) -> str:
    """`path` as uv names it (relative to `root`, or absolute) in the form of `Line.file`."""
    return posixpath.normpath(os.path.relpath(root / path, root))
