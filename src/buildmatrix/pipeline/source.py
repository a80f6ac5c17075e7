"""SOURCE: what a command is asked to look at, and its facts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from buildmatrix import store
from buildmatrix.engines.model import Engine, Surroundings
from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.trees.base import Tree

#: Label of an image that buildmatrix built, and that says what it is for.
BACKEND_LABEL = "dev.buildmatrix.backend"


@dataclass(frozen=True, slots=True)
class Source:
    """A SOURCE of the contract: `dir:PATH`, `wheel:PATH`, `docker:IMAGE`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Facts:
    """The inventory of a source, and what the source says of itself."""

    inventory: Inventory
    #: Backend that an image claims to be for.
    backend: str | None = None


def parse(text: str) -> Source:
    """Recognise a SOURCE, said outright (`dir:`, `wheel:`, `docker:`) or by its looks.

    Raises `UsageError`.
    """
    kind, colon, name = text.partition(":")
    if colon and kind in _READERS:
        if not name:
            raise UsageError(f"{text} names nothing; write {kind}: and what to read")
        return Source(kind, name)
    path = Path(text)
    if path.is_dir():
        return Source("dir", text)
    if path.suffix == ".whl" and path.is_file():
        return Source("wheel", text)
    if path.exists():
        raise UsageError(
            f"{text} is neither a folder nor a wheel; write what it is: dir: or wheel:"
        )
    if text.startswith((".", "/")) or text.endswith(".whl"):
        raise UsageError(f"there is no {text}")
    return Source("docker", text)


def read(
    source: Source, engine: Callable[[], Engine], scanner: str, surroundings: Surroundings
) -> Facts:
    """Read all facts of a source; nothing of it is executed.

    `engine` is asked for only when the source is an image; `scanner` is the image that the scan
    runs in. Raises `UndecidedError` for what cannot be read.
    """
    if source.kind == "docker":
        return _image(source.name, engine(), scanner, surroundings)
    return Facts(_tree(source))


def _tree(source: Source) -> Inventory:
    from buildmatrix.inventory.collect import collect

    try:
        with _READERS[source.kind](Path(source.name)) as tree:
            return collect(tree)
    except OSError as error:
        why = error.strerror or str(error)
        raise UndecidedError(f"{source} cannot be read: {why}") from error


def _image(name: str, engine: Engine, scanner: str, surroundings: Surroundings) -> Facts:
    image = engine.image(name)
    if image is None:
        raise UndecidedError(f"there is no image {name} on this machine; pull or build it first")
    with tempfile.TemporaryDirectory(prefix="buildmatrix-") as folder:
        inventory = store.read(engine.scan(name, Path(folder), scanner, surroundings))
    # The layers cannot say what the image's configuration does.
    return Facts(replace(inventory, environment=image.environment), image.labels.get(BACKEND_LABEL))


def _directory(path: Path) -> AbstractContextManager[Tree]:
    from buildmatrix.trees.directory import DirectoryTree

    return DirectoryTree(path)


def _wheel(path: Path) -> AbstractContextManager[Tree]:
    from buildmatrix.trees.wheel import WheelTree

    return WheelTree(path)


def _no_tree(path: Path) -> AbstractContextManager[Tree]:
    raise AssertionError(f"{path} is read by an engine")


_READERS: Mapping[str, Callable[[Path], AbstractContextManager[Tree]]] = {
    "dir": _directory,
    "wheel": _wheel,
    "docker": _no_tree,
}
