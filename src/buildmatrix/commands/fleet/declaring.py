"""Which files of a repository say what is installed, and which only say it once more.

By their names and texts alone: where they come from is somebody else's business.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from buildmatrix.commands.fleet.closure import included
from buildmatrix.errors import UndecidedError
from buildmatrix.locks.committed import is_lock
from buildmatrix.toml import TomlError, loads

#: The contents of a file of the repository, as far as it can be read at all.
TextOf = Callable[[str], str]
SPECIFICATION = "buildmatrix.toml"
_PYPROJECT = "pyproject.toml"
_LOCKS_OF_PROJECTS = ("uv.lock", "poetry.lock", "pylock.toml")
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?requirements(?:[-_.].*)?\.(?:txt|in)")
#: Folders of code that is another project's, or that is not installed where the project is.
_ASIDE = frozenset(
    {
        *("vendor", "vendored", "_vendor", "third_party", "third-party", "thirdparty"),
        *("node_modules", "site-packages", "test", "tests", "testing", "testdata", "fixtures"),
    }
)


def declares(path: str) -> bool:
    """Whether a file says what is installed, by its name."""
    folder, name = posixpath.split(path)
    if name in (SPECIFICATION, _PYPROJECT) or is_lock(name):
        return True
    in_folder = posixpath.basename(folder) == "requirements" and name.endswith((".txt", ".in"))
    # Constraints install nothing.
    return (in_folder or bool(_REQUIREMENTS.fullmatch(name))) and "constraint" not in name


def is_aside(path: str) -> bool:
    """Whether a file lies in a folder of tests or of code that is another project's."""
    return not _ASIDE.isdisjoint(path.split("/")[:-1])


def asks(path: str, text: TextOf) -> bool:
    """Whether a file asks for anything: many project files hold settings of tools alone."""
    if posixpath.basename(path) != _PYPROJECT:
        return True
    try:
        document = loads(text(path))
    except TomlError:
        return True  # It will be said what is wrong with it.
    project, tool = document.get("project"), document.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    held = []
    if isinstance(project, dict):
        held += [project.get("dependencies"), project.get("optional-dependencies")]
        held.append("dependencies" in (project.get("dynamic") or ()))
    if isinstance(poetry, dict):
        held.append(poetry.get("dependencies"))
    return any(held)


def covered(paths: Iterable[str], text: TextOf) -> Iterator[str]:
    """Files of which another one holds what is installed."""
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
                yield from included(path, text(path))
            except UndecidedError:
                continue  # It will be said of the file itself.
