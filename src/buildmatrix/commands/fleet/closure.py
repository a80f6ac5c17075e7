"""Files that a file of a repository reads, by its text: nothing is resolved here.

A worker gets only these files. A file missed here is missing there, which is reported.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from buildmatrix.errors import UndecidedError
from buildmatrix.locks.lines import INCLUDE, logical_lines
from buildmatrix.text import printable

#: Number of files, and bytes of all together.
MOST_FILES = 1000
MOST_BYTES = 64 << 20
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S+)")
_LOCAL = re.compile(r"(?:file:)?(\.{1,2}/[^\s;\[#]*|/[^\s;\[#]*)")
#: Inputs in the header of a file written by pip-compile or uv.
_INPUT = re.compile(r"[^\s'\"=]+\.(?:in|txt|toml|cfg)\b")
#: Other projects in a uv lock, and in a project file.
_PROJECT = re.compile(r'\b(?:editable|virtual|directory|path)\s*=\s*"([^"\n]{1,500})"')
_HEADER_LINES = 40
_PYPROJECT = "pyproject.toml"


def read_closure(path: str, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Return a file and all files that it reads, with contents; `read` gives None if missing.

    Raises `UndecidedError` for references outside of the repository.
    """
    files: dict[str, bytes] = {}
    total = 0
    waiting = [path]
    while waiting:
        name = waiting.pop()
        data = read(name) if name not in files else None
        if data is None:
            continue
        files[name] = data
        total += len(data)
        if len(files) > MOST_FILES or total > MOST_BYTES:
            raise UndecidedError(f"it reads more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
        waiting += _find_references(name, data.decode(errors="replace"), is_first=name == path)
    return files


def find_included(path: str, text: str) -> Iterator[str]:
    """Yield the files that a requirements file includes. Raises `UndecidedError`."""
    for number, line, _ in logical_lines(text):
        where = f"{printable(path)}:{number}"
        if variable := _VARIABLE.search(line):
            # The author of the line also controls addresses, and would learn the value there.
            raise UndecidedError(
                f"{where} uses the environment variable {variable[1]}, and a repository of a fleet "
                "gets none"
            )
        if include := INCLUDE.fullmatch(line):
            name = include[2].strip("\"' ")
            if "://" not in name:
                yield _join_inside(path, name, where)
        elif (local := _EDITABLE.match(line) or _LOCAL.match(line)) and "://" not in local[1]:
            yield posixpath.join(_join_inside(path, local[1].partition("[")[0], where), _PYPROJECT)


def _join_inside(path: str, name: str, where: str) -> str:
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    if posixpath.isabs(joined) or joined.split("/")[0] == "..":
        raise UndecidedError(f"{where} names {printable(name)[:200]}, outside of its repository")
    return joined


def _find_references(path: str, text: str, *, is_first: bool) -> Iterator[str]:
    folder, name = posixpath.split(path)

    def beside(other: str) -> str:
        return posixpath.normpath(posixpath.join(folder, other))

    if name.endswith((".txt", ".in")):
        yield from find_included(path, text)
        for line in text.splitlines()[:_HEADER_LINES]:
            if line.startswith("#"):
                yield from map(beside, _INPUT.findall(line))
        return
    if not is_first:
        return
    if name == "Pipfile.lock":
        yield beside("Pipfile")
    if name in ("uv.lock", "poetry.lock"):
        yield beside(_PYPROJECT)
    if name in ("uv.lock", _PYPROJECT):
        for other in _PROJECT.findall(text):
            yield beside(posixpath.join(other, _PYPROJECT))
