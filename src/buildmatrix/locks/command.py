"""The command in the header of a lock, by which a tool made it: what it was made from.

uv, pip-compile and PDM write it, in pinned requirements and in a `pylock.toml`. Without one, a lock
is taken to be that of the project beside it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import SpecError
from buildmatrix.locks.projects import find_project, places, read_project
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.selection import LockSelection

_COMMAND = re.compile(
    r"#\s+(uv pip compile|uv export|pip-compile|python -m piptools compile)\b(.*)"
)
#: Options that stand alone; every other option may be followed by its value.
_ALONE = re.compile(
    r"--(no-[a-z-]+|generate-hashes|upgrade|strip-extras|allow-unsafe|all-extras|all-groups"
    r"|all-packages|universal|quiet|verbose|emit-[a-z-]+|annotate|header|pre|rebuild|resolver=\S+"
    r"|locked|frozen|offline|only-dev|dev|.*=.*)|-[qvUn]+"
)
#: Lines at the beginning of a file among which the command is.
_HEADER = 20
#: Folders above a lock in which the input that it names is looked for.
_ABOVE = 4


@dataclass(frozen=True, slots=True)
class LockCommand:
    """What a lock was made from."""

    #: As seen from where the tool ran.
    files: tuple[str, ...]
    #: Parts of a project (`ProjectRequirement.part`); empty where the command does not name them.
    parts: frozenset[str] = frozenset()


def command_of(text: str) -> LockCommand | None:
    """The command in the header of a file; None where there is none."""
    for line in text.split("\n", _HEADER)[:_HEADER]:
        match = _COMMAND.match(line)
        if match is None:
            continue
        try:
            words = shlex.split(match[2])
        except ValueError:
            return None
        files, options = _sorted_out(words)
        if match[1] == "uv export":
            return LockCommand(("pyproject.toml",), _parts(options))
        return LockCommand(tuple(files) or ("requirements.in",), _parts(options))
    return None


def _sorted_out(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The files of a command line, and its options with their values."""
    files: list[str] = []
    options: list[tuple[str, str]] = []
    expects_value = False
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            options.append((name, value))
            expects_value = _ALONE.fullmatch(word) is None
        elif expects_value:
            options[-1] = options[-1][0], word
            expects_value = False
        else:
            files.append(word)
    return files, options


def _parts(options: list[tuple[str, str]]) -> frozenset[str]:
    if any(name in ("--all-extras", "--all-groups") for name, _ in options):
        return frozenset()
    extras = {canonicalize_name(value) for name, value in options if name == "--extra"}
    groups = {
        canonicalize_name(value) for name, value in options if name in ("--group", "--only-group")
    }
    return frozenset({"", *extras, *(f":{name}" for name in groups)})


class CommandInputs:
    """The lines of the files that a lock was made from, each file read once."""

    def __init__(self, selection: LockSelection, command: LockCommand | None) -> None:
        self._selection = selection
        self._command = command
        self._labels_and_places: dict[str, tuple[str, Mapping[str, str]]] = {}

    @cached_property
    def project(self) -> str:
        """Normalized name of the project beside the lock; empty for none."""
        location = input_file(self._selection, "pyproject.toml")
        project = find_project(*location) if location is not None else None
        return project.name if project is not None else ""

    def place(self, file: str, name: str) -> str:
        """`file:line` of what asks for a distribution; the file alone where no line does."""
        label, places = self._file(file)
        return places.get(name, label)

    def places(self, name: str) -> set[str]:
        """`file:line` of what asks for a distribution, in all inputs."""
        files = self._command.files if self._command is not None else ("pyproject.toml",)
        candidates = (self._file(file)[1].get(name) for file in files)
        return {place for place in candidates if place is not None}

    def _file(self, file: str) -> tuple[str, Mapping[str, str]]:
        if file not in self._labels_and_places:
            self._labels_and_places[file] = self._read(file)
        return self._labels_and_places[file]

    def _read(self, file: str) -> tuple[str, Mapping[str, str]]:
        """What a file is called, and name → `file:line`."""
        location = input_file(self._selection, file)
        if location is None:
            return file, {}
        path, label = location
        try:
            if path.name == "pyproject.toml":
                return label, self._project_lines(path, label)
            lines = read_requirements(path, label).lines
        except SpecError:
            return label, {}
        return label, {line.name: str(line) for line in reversed(lines)}

    def _project_lines(self, path: Path, label: str) -> Mapping[str, str]:
        project = read_project(path, label)
        parts = self._command.parts if self._command is not None else frozenset[str]()
        all_parts = {"", *project.extras, *(f":{name}" for name in project.groups)}
        # What is always installed comes first, where an extra asks for the same.
        return {**places(project, parts or all_parts), **places(project, {""})}


def input_file(selection: LockSelection, file: str) -> tuple[Path, str] | None:
    """An input that a lock names, and what it is called; None where it is not there.

    Tools write the path as seen from where they ran: beside the lock or in a folder above it.
    """
    folder, prefix = selection.path.parent, selection.label.rpartition("/")[0]
    up = ""
    for _ in range(_ABOVE):
        path = folder / up / file
        if path.is_file():
            parts = [part for part in prefix.split("/") if part]
            above = up.count("..")
            names = parts[: len(parts) - above] if above <= len(parts) else [".."] * above
            return path, "/".join([*names, file])
        up = f"../{up}"
    return None
