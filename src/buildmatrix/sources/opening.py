"""How the files of a source are opened again, after its facts were read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from io import BufferedIOBase
from pathlib import Path

from buildmatrix.engines.model import Engine
from buildmatrix.scratch import scratch
from buildmatrix.trees.base import Tree

OpenTree = Callable[[], AbstractContextManager[Tree]]


def folder(path: Path) -> AbstractContextManager[Tree]:
    """The files of a folder; of a virtual environment, its site folders."""
    from buildmatrix.sources.environments import environment_of, environment_tree
    from buildmatrix.trees.directory import DirectoryTree

    return DirectoryTree(path) if environment_of(path) is None else environment_tree(path)


def zstandard(stream: BufferedIOBase) -> BufferedIOBase:
    """The standard library's reader, or the same one for Pythons before 3.14."""
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdFile
    else:
        from backports.zstd import ZstdFile
    return ZstdFile(stream)


def _wheel(path: Path) -> AbstractContextManager[Tree]:
    from buildmatrix.trees.wheel import WheelTree

    return WheelTree(path)


@contextmanager
def _saved(path: Path) -> Iterator[Tree]:
    from buildmatrix.trees.archive_image import SavedImage

    with SavedImage(path, zstandard) as image:
        yield image.tree()


_TREES: Mapping[str, Callable[[Path], AbstractContextManager[Tree]]] = {
    "dir": folder,
    "wheel": _wheel,
    "tar": _saved,
    "oci": _saved,
}


def tree_of(kind: str, name: str) -> OpenTree | None:
    """How the files of a source are opened again; None for what only an engine has."""
    open_it = _TREES.get(kind)
    return None if open_it is None else lambda: open_it(Path(name))


@contextmanager
def exported(engine: Engine, image: str) -> Iterator[Tree]:
    """The files of an engine's image, which is exported into a temporary file."""
    with scratch("image") as folder:
        path = folder / "image.tar"
        with path.open("wb") as file, engine.export(image) as chunks:
            for chunk in chunks:
                file.write(chunk)
        with _saved(path) as tree:
            yield tree
