"""How the files of a source are opened again, after its facts were read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from buildmatrix.engines.model import Engine
from buildmatrix.trees.base import Tree

OpenTree = Callable[[], AbstractContextManager[Tree]]


@contextmanager
def _folder(path: Path) -> Iterator[Tree]:
    from buildmatrix.pipeline.environments import environment_of, environment_tree
    from buildmatrix.trees.directory import DirectoryTree

    opened: AbstractContextManager[Tree]
    opened = DirectoryTree(path) if environment_of(path) is None else environment_tree(path)
    with opened as tree:
        yield tree


@contextmanager
def _wheel(path: Path) -> Iterator[Tree]:
    from buildmatrix.trees.wheel import WheelTree

    with WheelTree(path) as tree:
        yield tree


@contextmanager
def _saved(path: Path) -> Iterator[Tree]:
    from buildmatrix.pipeline.source import _zstandard
    from buildmatrix.trees.archive_image import SavedImage

    with SavedImage(path, _zstandard) as image:
        yield image.tree()


_TREES: Mapping[str, Callable[[Path], AbstractContextManager[Tree]]] = {
    "dir": _folder,
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
    with tempfile.NamedTemporaryFile(prefix="buildmatrix-", suffix=".tar") as file:
        with engine.export(image) as chunks:
            for chunk in chunks:
                file.write(chunk)
        file.flush()
        with _saved(Path(file.name)) as tree:
            yield tree
