"""SOURCE: what a command is asked to look at, and its facts."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix import store
from buildmatrix.engines.exports import layers_of_image, zstandard
from buildmatrix.engines.model import Engine, Surroundings
from buildmatrix.errors import BuildmatrixError, UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Wheel
from buildmatrix.scratch import scratch
from buildmatrix.sources.environments import environment_of
from buildmatrix.sources.opening import folder
from buildmatrix.text import printable, shown
from buildmatrix.trees.base import reason
from buildmatrix.urls import path_in, remember

if TYPE_CHECKING:
    from buildmatrix.store.facts import FactCache

#: Label of an image that buildmatrix built, and that says what it is for.
BACKEND_LABEL = "dev.buildmatrix.backend"
#: Of the log of a scan that failed: lines that are shown, and bytes that they are looked for in.
_LOG_LINES = 10
_LOG_BYTES = 64 << 10
#: Kinds of SOURCE that are no tree, and the command that judges them.
_NO_TREES = dict.fromkeys(("pypi", "lock", "requirements", "pyproject"), "audit") | {
    "report": "report"
}
#: Names of interpreters.
_INTERPRETER = re.compile(r"python[0-9.]*t?")
#: Names of archives, which `docker save` and its like write.
_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.zst|oci)$")


@dataclass(frozen=True, slots=True)
class Source:
    """A SOURCE of the contract: `dir:PATH`, `wheel:PATH`, `docker:IMAGE`, `oci:`, `tar:`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return shown(f"{self.kind}:{self.name}")


@dataclass(frozen=True, slots=True)
class Facts:
    """The inventory of a source, and what the source says of itself."""

    inventory: Inventory
    #: Backend that an image claims to be for.
    backend: str | None = None
    #: Labels of an image's configuration.
    labels: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Source:
    """Recognise a SOURCE, said outright (`dir:`, `wheel:`, `docker:`, ...) or by its looks.

    Raises `UsageError`.
    """
    if not text.strip():
        raise UsageError("SOURCE is empty; name a folder, a wheel, a saved image or an image")
    kind, colon, name = text.partition(":")
    if colon and kind in _NO_TREES:
        raise UsageError(
            f"{kind}: is nothing that lies there to be read, as "
            f"{', '.join(f'{one}:' for one in _READERS)} are; see `buildmatrix {_NO_TREES[kind]}`"
        )
    if colon and kind in _READERS:
        if not name:
            raise UsageError(f"{text} names nothing; write {kind}: and what to read")
        environment = environment_of(Path(name)) if kind == "dir" else None
        return Source(kind, str(environment or name))
    if "://" in text and path_in(text).endswith(".whl"):
        return Source("wheel", text)
    path = Path(text)
    environment = environment_of(path)
    if environment is not None:
        return Source("dir", str(environment))
    if path.is_dir():
        return Source("oci" if (path / "oci-layout").is_file() else "dir", text)
    if path.is_file() and path.suffix == ".whl":
        return Source("wheel", text)
    if path.is_file() and _ARCHIVE.search(path.name):
        return Source("tar", text)
    if path.is_file() and _INTERPRETER.fullmatch(path.name):
        raise UsageError(
            f"{text} belongs to no virtual environment, and nothing is run to ask where its "
            "packages are; name the folder that they lie in, or /"
        )
    if path.exists():
        raise UsageError(
            f"{text} is neither a folder, a wheel nor a saved image; write what it is: "
            f"{', '.join(f'{kind}:' for kind in _READERS)}"
        )
    if text.startswith((".", "/")) or text.endswith(".whl") or _ARCHIVE.search(text):
        raise UsageError(f"there is no {text}")
    return Source("docker", text)


def read(
    source: Source,
    engine: Callable[[], Engine],
    scanner: str,
    surroundings: Surroundings,
    cache: FactCache | None = None,
    *,
    layers: bool = False,
) -> Facts:
    """Read all facts of a source; nothing of it is executed.

    `engine` is asked for only when the source is an image of its own; `scanner` is the image that
    the scan then runs in. What `cache` knows is not read again. `layers` asks for the layers of an
    engine's image too, which costs an export; those of a saved image are always read. Raises
    `UndecidedError` for what cannot be read.
    """
    try:
        if source.kind == "docker":
            facts = _image(source.name, engine(), scanner, surroundings, cache, layers)
        else:
            facts = _READERS[source.kind](Path(source.name), cache)
    except OSError as error:
        raise UndecidedError(f"{source} cannot be read: {reason(error)}") from error
    found = facts.inventory
    if not (found.distributions or found.binaries or found.artefacts or found.unread):
        raise UndecidedError(f"{source} holds no distribution and no binary: nothing to judge")
    return facts


def address_of(source: Source) -> Wheel | None:
    """The wheel on a server that a source names; None for what lies on this machine.

    Raises `UsageError` where the address names no wheel.
    """
    if source.kind != "wheel" or "://" not in source.name:
        return None
    url, _, fragment = source.name.partition("#")
    filename = posixpath.basename(path_in(url))
    if not filename.endswith(".whl"):
        raise UsageError(f"{source} is no wheel: the name of one ends in .whl")
    # As pip and uv write it behind an address.
    claim = re.search(r"(?:^|&)sha256=([0-9A-Fa-f]{64})(?:&|$)", fragment)
    remember(url)
    return Wheel(filename, url, claim[1].lower() if claim is not None else "")


def _image(
    name: str,
    engine: Engine,
    scanner: str,
    surroundings: Surroundings,
    cache: FactCache | None,
    layers: bool,
) -> Facts:
    try:
        image = engine.image(name)
    except BuildmatrixError as error:
        # The daemon's words (distribution/reference, ErrReferenceInvalidFormat).
        if "invalid reference format" not in error.message:
            raise
        raise UsageError(
            f"{name!r} is no name of an image; write NAME:TAG in lower case, or the path of a "
            "folder that exists"
        ) from error
    if image is None:
        raise UndecidedError(f"there is no image {name} on this machine; pull or build it first")

    def scan() -> Inventory:
        with scratch("scan") as folder:
            try:
                return store.read(engine.scan(name, folder, scanner, surroundings))
            except BuildmatrixError as error:
                raise _with_log(error) from error

    inventory = scan() if cache is None else cache.inventory(f"image {image.digest}", scan)
    if layers:
        # An image is named by the digest of its configuration or manifest, which name its layers.
        def read_layers() -> Inventory:
            return layers_of_image(name, engine, inventory)

        known = (
            read_layers()
            if cache is None
            else cache.inventory(f"layers {image.digest}", read_layers)
        )
        inventory = replace(
            inventory, layers=known.layers, origins=known.origins, buried=known.buried
        )
    # The layers cannot say what the image's configuration does.
    inventory = replace(inventory, environment=image.environment)
    return Facts(inventory, image.labels.get(BACKEND_LABEL), image.labels)


def _with_log(error: BuildmatrixError) -> BuildmatrixError:
    """`error` with the end of its log, which nobody can read once its folder is gone."""
    if error.log is None:
        return error
    try:
        with error.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    told = "".join(f"\n  {printable(shown(line))}" for line in lines)
    return type(error)(error.message + (f"\nThe log ends with:{told}" if told else ""))


def _folder(path: Path, cache: FactCache | None) -> Facts:
    from buildmatrix.inventory.collect import collect

    with folder(path) as tree:
        return Facts(collect(tree) if cache is None else cache.folder(path, tree))


def _wheel(path: Path, cache: FactCache | None) -> Facts:
    from buildmatrix.inventory.collect import collect
    from buildmatrix.store.facts import digest
    from buildmatrix.trees.wheel import WheelTree

    def scan() -> Inventory:
        with WheelTree(path) as tree:
            return collect(tree)

    return Facts(scan() if cache is None else cache.inventory(f"wheel {digest(path)}", scan))


def _archive(path: Path, cache: FactCache | None) -> Facts:
    from buildmatrix.inventory.collect import collect
    from buildmatrix.inventory.layers import with_layers
    from buildmatrix.store.facts import digest
    from buildmatrix.trees.archive_image import SavedImage

    with SavedImage(path, zstandard) as image:
        configuration = image.configuration

        def scan() -> Inventory:
            tree = image.tree()
            found = collect(tree, configuration.environment)
            return with_layers(found, tree, configuration.digests, configuration.instructions)

        # A layout names its blobs by digests, which its writer may have made up.
        if cache is None or path.is_dir():
            inventory = scan()
        else:
            inventory = cache.inventory(f"archive {digest(path)}", scan)
    return Facts(inventory, configuration.labels.get(BACKEND_LABEL), configuration.labels)


def _no_reader(path: Path, _: FactCache | None) -> Facts:
    raise AssertionError(f"{path} is read by an engine")


_READERS: Mapping[str, Callable[[Path, FactCache | None], Facts]] = {
    "dir": _folder,
    "wheel": _wheel,
    "docker": _no_reader,
    "tar": _archive,
    "oci": _archive,
}
