"""Virtual environments: where they are, and which other packages their interpreter sees.

Format: PEP 405 (`pyvenv.cfg`) and the `site` module. Nothing is executed, so the base interpreter
is not asked: its folders are found by their places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.trees.base import File, RandomAccess, Symlink, Tree, Trouble, Unreadable, reason

CONFIGURATION = "pyvenv.cfg"
#: Bytes of a pyvenv.cfg.
LARGEST = 64 << 10


def environment_of(path: Path) -> Path | None:
    """The virtual environment that `path` is, or whose interpreter it is; None for neither."""
    for folder in (path, path.parent.parent):
        is_program = folder is path or re.fullmatch(r"python[0-9.]*t?", path.name)
        if is_program and (folder / CONFIGURATION).is_file():
            return folder
    return None


def system_packages(environment: Path) -> tuple[Path, ...]:
    """Folders of the base interpreter's packages that a virtual environment lets in.

    Empty unless its `include-system-site-packages` is true. Raises `UndecidedError` when they are
    let in, and cannot be found.
    """
    settings = _settings(environment / CONFIGURATION)
    if settings.get("include-system-site-packages", "false").lower() != "true":
        return ()
    home = settings.get("home", "")
    version = _version(settings, environment)
    folders: tuple[Path, ...] = ()
    if home.startswith("/") and version is not None:
        folders = tuple(_packages_below(Path(home), version))
    if not folders:
        raise UndecidedError(
            f"{environment} lets in the packages of its base interpreter (home = {home!r} in "
            f"{CONFIGURATION}), and they are not found; scan dir: with the folder that holds both"
        )
    return folders


def _settings(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    lines = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in lines if equals}


def _version(settings: Mapping[str, str], environment: Path) -> str | None:
    """`3.12`; None when neither the configuration (venv; virtualenv, uv) nor a folder says."""
    folders = [path.name.removeprefix("python") for path in environment.glob("lib/python3.*")]
    for text in (settings.get("version"), settings.get("version_info"), *folders):
        if text and (match := re.match(r"3\.\d+", text)):
            return match[0]
    return None


def _packages_below(home: Path, version: str) -> Iterator[Path]:
    """`site-packages` of a prefix, and the `dist-packages` that Debian has instead."""
    prefix = home.parent
    for base in (prefix / "local", prefix):
        for library in ("lib", "lib64"):
            if (base / library).is_symlink():
                continue
            # A free-threaded build has a `t`; Debian's `python3` serves every 3.x.
            for name in (f"python{version}", f"python{version}t", "python3"):
                for kind in ("site-packages", "dist-packages"):
                    folder = base / library / name / kind
                    if folder.is_dir():
                        yield folder


@dataclass(frozen=True, slots=True)
class Part:
    """One tree inside of a joined one; `prefix` ends with a slash or is empty."""

    prefix: str
    tree: Tree


class JoinedTree(Tree):
    """Several trees as one, each below its prefix."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = sorted(parts, key=lambda part: part.prefix)

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: one part after the other."""
        for part in self._parts:
            for entry in part.tree.walk():
                yield replace(entry, path=part.prefix + entry.path)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        """See `Tree.open`."""
        for part in reversed(self._parts):
            if path.startswith(part.prefix):
                return part.tree.open(path.removeprefix(part.prefix))
        raise Unreadable("no part of the tree")


@contextmanager
def environment_tree(environment: Path) -> Iterator[Tree]:
    """A virtual environment, with the packages of its base where it lets them in.

    Those lie in the tree where they lie on this machine: `usr/lib/python3/dist-packages`. Raises
    OSError or `UndecidedError`.
    """
    from buildmatrix.trees.directory import DirectoryTree

    with ExitStack() as held:
        parts = [Part("", held.enter_context(DirectoryTree(environment)))]
        for folder in system_packages(environment):
            prefix = os.fspath(folder.resolve()).lstrip("/") + "/"
            parts.append(Part(prefix, held.enter_context(DirectoryTree(folder))))
        yield parts[0].tree if len(parts) == 1 else JoinedTree(parts)
