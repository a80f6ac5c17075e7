"""Tree → inventory: everything the rest of buildmatrix knows of a tree is read here, once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from buildmatrix.elf import devicefile
from buildmatrix.elf.head import read_forward
from buildmatrix.elf.model import DeviceFile, Elf
from buildmatrix.elf.reader import Malformed, read_elf
from buildmatrix.inventory.distributions import Ownership, read_distributions
from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Artefact, Binary, Inventory, Link, Stats
from buildmatrix.inventory.python_loading import read_python
from buildmatrix.inventory.python_path import python_paths
from buildmatrix.inventory.python_source import LARGEST_SEARCHED, Outline, outline
from buildmatrix.inventory.system import (
    library_folders,
    loader_cache,
    musl_folders,
    preloaded,
    system_packages,
)
from buildmatrix.inventory.system_files import packaged
from buildmatrix.inventory.workers import spread
from buildmatrix.trees.base import File, Source, Tree, reason
from buildmatrix.trees.inflating import Passing

ELF_MAGIC = b"\x7fELF"
#: `libx.so`, `libx.so.12`, `ld-linux-x86-64.so.2`: the names that a loader looks for.
_LIBRARY_NAME = re.compile(r"\.so(\.|$)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the bytes of one file are: at most one of the first four is set."""

    elf: Elf | None = None
    outline: Outline | None = None
    device: DeviceFile | None = None
    unread: str | None = None
    #: What it cost in this scan; 0 for what was recalled.
    bytes_read: int = 0


class Memory(Protocol):
    """What earlier scans saw in the files of a tree; `buildmatrix.store` has one that lasts."""

    def recall(self, file: File) -> Seen | None:
        """What was seen in `file` when it had these bytes; None when that is not known."""

    def keep(self, file: File, seen: Seen) -> None:
        """Remember what was seen in `file`; called for all files, also those just recalled."""


def collect(
    tree: Tree,
    environment: Mapping[str, str] = MappingProxyType({}),
    memory: Memory | None = None,
) -> Inventory:
    """All facts of `tree`; `environment` is the one of the image's configuration.

    Files that `memory` recalls are not opened again. What could not be read is in
    `Inventory.unread`. Raises OSError only when the root itself cannot be listed.
    """
    started = time.monotonic()
    listing = Listing(tree)
    distributions, ownership = read_distributions(listing)
    packages, folders = system_packages(listing), library_folders(listing)
    primary, hard_links = _one_name_each(listing, ownership)
    files = _read_files(listing, primary, ownership, memory)
    binaries = files.binaries
    python = read_python(
        listing, ownership, distributions, [one.path for one in binaries], files.outlines
    )
    mattering = {
        *(one.path for one in binaries),
        *(one.path for one in files.artefacts),
        *(one.path for one in distributions),
        *(one.path for one in python.loads),
    }
    return Inventory(
        distributions=distributions,
        binaries=tuple(python.reached(binary) for binary in binaries),
        artefacts=tuple(files.artefacts),
        python_loads=python.loads,
        python_imports=python.imports,
        unparsed=python.unparsed,
        python_paths=python_paths(listing, environment),
        links=tuple(_library_links(listing, binaries, hard_links)),
        system_packages=packages,
        packaged=packaged(listing, packages, mattering),
        shared_paths=ownership.shared,
        library_folders=folders,
        loader_cache=loader_cache(listing),
        preload=preloaded(listing),
        musl_folders=musl_folders(listing),
        environment=dict(sorted(environment.items())),
        unread=tuple(sorted(set(listing.unread), key=lambda entry: (entry.path, entry.why))),
        stats=Stats(
            files=len(listing.files),
            binaries=len(binaries),
            bytes_total=sum(listing.files[path].size for path in primary),
            bytes_read=listing.bytes_read,
            seconds=round(time.monotonic() - started, 3),
            cached=files.recalled,
        ),
    )


def _one_name_each(listing: Listing, ownership: Ownership) -> tuple[list[str], dict[str, str]]:
    """Paths of all distinct files, sorted, and hard link → path that stands for it.

    A name that a distribution owns stands for the file before one that nobody owns (uv links from
    its cache).
    """
    names: dict[tuple[int, int], list[str]] = {}
    primary: list[str] = []
    for path, file in listing.files.items():
        if file.identity is None:
            primary.append(path)
        else:
            names.setdefault(file.identity, []).append(path)
    hard_links: dict[str, str] = {}
    for paths in names.values():
        first, *rest = sorted(paths, key=lambda path: (path not in ownership.owners, path))
        primary.append(first)
        hard_links.update(dict.fromkeys(rest, first))
    return sorted(primary), hard_links


@dataclass(slots=True)
class _Files:
    """What the files of a tree are, in the order of their paths."""

    binaries: list[Binary] = field(default_factory=list)
    artefacts: list[Artefact] = field(default_factory=list)
    outlines: dict[str, Outline] = field(default_factory=dict)
    #: How many of them earlier scans had seen.
    recalled: int = 0


def _read_files(
    listing: Listing, paths: list[str], ownership: Ownership, memory: Memory | None
) -> _Files:
    """What the files at `paths` are; what could not be read is noted.

    What was recalled and seen is let go on return: the next step forks, and takes what it can get.
    """
    known = {} if memory is None else _recalled(listing, paths, memory)
    fresh = _inspect_all(listing, [path for path in paths if path not in known])
    found = _Files(recalled=len(known))
    for path in paths:
        seen, file = known[path] if path in known else fresh[path], listing.files[path]
        if memory is not None:
            memory.keep(file, seen)
        listing.bytes_read += seen.bytes_read
        owner = ownership.owners.get(path)
        unread: tuple[str, ...] = ()
        if seen.unread is not None:
            unread = (seen.unread,)
        elif (elf := seen.elf) is not None:
            found.binaries.append(Binary(path, file.size, elf, owner, packed=file.packed))
            unread = elf.unread
        elif seen.outline is not None:
            found.outlines[path] = seen.outline
        elif (device := seen.device) is not None:
            found.artefacts.append(
                Artefact(path, file.size, device.kind, owner, device.device_code, device.marks)
            )
            unread = device.unread
        for why in unread:
            listing.note(path, why)
    return found


def _recalled(listing: Listing, paths: list[str], memory: Memory) -> dict[str, Seen]:
    """What is known already of the files at `paths`."""
    found = ((path, memory.recall(listing.files[path])) for path in paths)
    return {path: seen for path, seen in found if seen is not None}


def _inspect_all(listing: Listing, paths: list[str]) -> dict[str, Seen]:
    """What each of `paths` is."""
    sizes = [listing.files[path].size for path in paths]
    seen = spread(lambda index: inspect(listing.tree, listing.files[paths[index]]), sizes)
    return dict(zip(paths, seen, strict=True))


def inspect(tree: Tree, file: File) -> Seen:
    """What `file` of `tree` is; trouble with its bytes is told in the result."""
    if file.size < len(ELF_MAGIC):
        return Seen()
    try:
        with tree.open(file.path) as source:
            return look(source, file.path, file.size)
    except OSError as error:
        return Seen(unread=reason(error))


def look(source: Source, path: str, size: int) -> Seen:
    """What the file at `path` is, whose `size` bytes `source` has. Raises OSError.

    A `Passing` source is read as far as it takes to see that it is nothing, or to its end.
    """
    if path.endswith(".py"):
        # Of a very large file, its beginning.
        found = outline(source.read(0, min(size, LARGEST_SEARCHED)))
        return Seen(outline=found, bytes_read=source.bytes_read)
    head = source.read(0, devicefile.HEAD)
    passes = isinstance(source, Passing)
    elf: Elf | None = None
    device: DeviceFile | None = None
    try:
        if devicefile.kind_of(path, head) is not None:
            device = devicefile.read_device_file(source, size, path, forward=passes)
        elif head.startswith(ELF_MAGIC):
            elf = (read_forward(source, size) if passes else None) or read_elf(source, size)
    except Malformed as error:
        return Seen(unread=error.reason, bytes_read=source.bytes_read)
    if isinstance(source, Passing) and (elf or device):
        source.finish()
    return Seen(elf=elf, device=device, bytes_read=source.bytes_read)


def _library_links(
    listing: Listing, binaries: list[Binary], hard_links: Mapping[str, str]
) -> Iterator[Link]:
    """The links without which the loader model would not find what the loader finds, sorted."""
    objects = {binary.path for binary in binaries}
    hard = {path: target for path, target in hard_links.items() if target in objects}
    named = {path for path in listing.links if _LIBRARY_NAME.search(path.rpartition("/")[2])}
    with_libraries = _ancestors(objects | hard.keys() | named)
    for path in sorted({*listing.links, *hard}):
        if path in hard:
            yield Link(path, "/" + hard[path], hard=True)
        elif path in named or listing.paths.folder(path) in with_libraries:
            yield Link(path, listing.links[path])


def _ancestors(paths: set[str]) -> set[str]:
    """Every folder that one of `paths` lies below."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
