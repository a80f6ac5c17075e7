"""Tree → inventory: everything the rest of buildmatrix knows of a tree is read here, once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from buildmatrix.elf.model import Elf
from buildmatrix.elf.reader import Malformed, read_elf
from buildmatrix.inventory import artefacts
from buildmatrix.inventory.distributions import Ownership, read_distributions
from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Artefact, Binary, Inventory, Link, Stats
from buildmatrix.inventory.system import library_folders, system_packages
from buildmatrix.inventory.workers import spread
from buildmatrix.trees.base import File, Tree, reason

ELF_MAGIC = b"\x7fELF"
#: `libx.so`, `libx.so.12`, `ld-linux-x86-64.so.2`: the names that a loader looks for.
_LIBRARY_NAME = re.compile(r"\.so(\.|$)")


def collect(tree: Tree, environment: Mapping[str, str] = MappingProxyType({})) -> Inventory:
    """All facts of `tree`; `environment` is the one of the image's configuration.

    What could not be read is in `Inventory.unread`. Raises OSError only when the root itself
    cannot be listed.
    """
    started = time.monotonic()
    listing = Listing(tree)
    distributions, ownership = read_distributions(listing)
    packages, folders = system_packages(listing), library_folders(listing)

    primary, hard_links = _one_name_each(listing, ownership)
    binaries: list[Binary] = []
    others: list[Artefact] = []
    for path, seen in zip(primary, _inspect_all(listing, primary), strict=True):
        listing.bytes_read += seen.bytes_read
        size, owner = listing.files[path].size, ownership.owners.get(path)
        if seen.unread is not None:
            listing.note(path, seen.unread)
        elif seen.elf is not None:
            binaries.append(Binary(path, size, seen.elf, owner))
            for why in seen.elf.unread:
                listing.note(path, why)
        elif seen.artefact is not None:
            others.append(Artefact(path, size, seen.artefact, owner))

    return Inventory(
        distributions=distributions,
        binaries=tuple(binaries),
        artefacts=tuple(others),
        links=tuple(_library_links(listing, binaries, hard_links)),
        system_packages=packages,
        shared_paths=ownership.shared,
        library_folders=folders,
        environment=dict(sorted(environment.items())),
        unread=tuple(sorted(set(listing.unread), key=lambda entry: (entry.path, entry.why))),
        stats=Stats(
            files=len(listing.files),
            binaries=len(binaries),
            bytes_total=sum(listing.files[path].size for path in primary),
            bytes_read=listing.bytes_read,
            seconds=round(time.monotonic() - started, 3),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the bytes of one file are: at most one of the first three is set."""

    elf: Elf | None = None
    artefact: str | None = None
    unread: str | None = None
    bytes_read: int = 0


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


def _inspect_all(listing: Listing, paths: list[str]) -> list[_Seen]:
    """What each file is, in the order of `paths`."""
    sizes = [listing.files[path].size for path in paths]
    return spread(lambda index: _inspect(listing.tree, listing.files[paths[index]]), sizes)


def _inspect(tree: Tree, file: File) -> _Seen:
    if file.size < len(ELF_MAGIC):
        return _Seen()
    try:
        with tree.open(file.path) as source:
            head = source.read(0, artefacts.HEAD)
            if head.startswith(ELF_MAGIC):
                try:
                    return _Seen(elf=read_elf(source, file.size), bytes_read=source.bytes_read)
                except Malformed as error:
                    return _Seen(unread=error.reason, bytes_read=source.bytes_read)
            return _Seen(
                artefact=artefacts.artefact_kind(file.path, head), bytes_read=source.bytes_read
            )
    except OSError as error:
        return _Seen(unread=reason(error))


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
