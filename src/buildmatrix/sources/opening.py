"""How the files of a source are opened again, after its facts were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from buildmatrix.engines.exports import OpenTree, saved_image
from buildmatrix.trees.base import Tree


def folder(path: Path) -> AbstractContextManager[Tree]:
    """The files of a folder; of a virtual environment, its site folders."""
    from buildmatrix.sources.environments import environment_of, environment_tree
    from buildmatrix.trees.directory import DirectoryTree

    return DirectoryTree(path) if environment_of(path) is None else environment_tree(path)


def _wheel(path: Path) -> AbstractContextManager[Tree]:
    from buildmatrix.trees.wheel import WheelTree

    return WheelTree(path)


_TREES: Mapping[str, Callable[[Path], AbstractContextManager[Tree]]] = {
    "dir": folder,
    "wheel": _wheel,
    "tar": saved_image,
    "oci": saved_image,
}


def tree_of(kind: str, name: str) -> OpenTree | None:
    """How the files of a source are opened again; None for what only an engine has."""
    open_it = _TREES.get(kind)
    return None if open_it is None else lambda: open_it(Path(name))
