"""Files of a repository that declare distributions, and those that repeat others.

Only names and texts count, independent of the source of the files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from buildmatrix.commands.fleet.closure import find_included
from buildmatrix.errors import UndecidedError
from buildmatrix.locks.committed import is_lock
from buildmatrix.toml import TomlError, loads

#: Returns the contents of a file of the repository, as far as readable.
TextOf = Callable[[str], str]
SPECIFICATION = "buildmatrix.toml"
_PYPROJECT = "pyproject.toml"
_LOCKS_OF_PROJECTS = ("uv.lock", "poetry.lock", "pylock.toml")
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?requirements(?:[-_.].*)?\.(?:txt|in)")
#: Folders with code of other projects, or code that is not installed with the project.
_ASIDE = frozenset(
    {
        *("vendor", "vendored", "_vendor", "third_party", "third-party", "thirdparty"),
        *("node_modules", "site-packages", "test", "tests", "testing", "testdata", "fixtures"),
    }
)


def declares_distributions(path: str) -> bool:
    """True if a file declares distributions, by its name."""
    folder, name = posixpath.split(path)
    if name in (SPECIFICATION, _PYPROJECT) or is_lock(name):
        return True
    in_folder = posixpath.basename(folder) == "requirements" and name.endswith((".txt", ".in"))
    # Constraints install nothing.
    return (in_folder or bool(_REQUIREMENTS.fullmatch(name))) and "constraint" not in name


def is_aside(path: str) -> bool:
    """True if a file is in a folder of tests or of another project's code."""
    return not _ASIDE.isdisjoint(path.split("/")[:-1])


def has_requirements(path: str, text: TextOf) -> bool:
    """True if a file requires anything: many project files have only settings of tools."""
    if posixpath.basename(path) != _PYPROJECT:
        return True
    try:
        document = loads(text(path))
    except TomlError:
        return True  # Judging the file reports the error.
    project, tool = document.get("project"), document.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    held = []
    if isinstance(project, dict):
        held += [project.get("dependencies"), project.get("optional-dependencies")]
        held.append("dependencies" in (project.get("dynamic") or ()))
    if isinstance(poetry, dict):
        held.append(poetry.get("dependencies"))
    return any(held)


def find_covered(paths: Iterable[str], text: TextOf) -> Iterator[str]:
    """Yield files whose contents are covered by another one."""
    names = set(paths)
    for path in names:
        folder, name = posixpath.split(path)
        if (
            name == _PYPROJECT
            and any(posixpath.join(folder, lock) in names for lock in _LOCKS_OF_PROJECTS)
        ) or (name.endswith(".in") and path.removesuffix(".in") + ".txt" in names):
            yield path
        if name.endswith((".txt", ".in")):
            try:
                yield from find_included(path, text(path))
            except UndecidedError:
                continue  # Judging the file itself reports it.
