"""Files that were never installed: caches of package managers, and package files.

They are judged apart. Installed parts do not include distributions, libraries and kernels of a
cache, unless something outside leads there: a search path, a link, or another name of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.catalogue.entries import CacheEntry
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.match import PACKAGE_ROLE, evidence
from buildmatrix.catalogue.model import Evidence, LeftoverKind
from buildmatrix.facts.inventory.listing import LinkedPaths
from buildmatrix.facts.inventory.model import PACKAGES, Artefact, Binary, Container, Inventory

#: Variables with folders that programs search.
_SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
#: Parts of an inventory that lie at a path.
_PARTS = (
    "distributions", "binaries", "artefacts", "containers", "python_loads", "python_imports",
    "unparsed", "shared_paths",
)  # fmt: skip
_NEVER_INSTALLED = (
    "copy only the build result: bind the folder with the packages (`RUN --mount=type=bind`) "
    "where they are installed, or install them in a build stage"
)
#: Name and version of a package by the name of its file: PEP 427, conda, deb(5), rpm.
_FILE_NAMES = {
    "wheel": re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.*\.whl"),
    "conda": re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.(?:conda|tar\.bz2)"),
    "deb": re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]*)_.*\.deb"),
    "rpm": re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.rpm"),
}


class Leftover(Struct, frozen=True):
    """A cache, or the package files of one folder."""

    #: The folder.
    path: str
    #: `uv's cache`; empty for package files.
    title: str
    kind: LeftoverKind
    advice: str
    files: int
    #: Bytes that belong to nothing else: a file with another name outside is not counted.
    size: int
    #: Index of the layer that added it, if layers are known.
    layer: int | None
    #: Its content, the largest first.
    evidence: tuple[Evidence, ...] = ()


class SplitInventory(Struct, frozen=True):
    """An inventory in two."""

    installed: Inventory
    #: Content of caches and package files.
    aside: Inventory
    leftovers: tuple[Leftover, ...] = ()

    @property
    def whole(self) -> Inventory:
        """Everything again, without an owner where nothing was installed."""
        if not self.leftovers:
            return self.installed
        return replace(
            self.installed,
            binaries=_concatenate(self.installed.binaries, self.aside.binaries),
            artefacts=_concatenate(self.installed.artefacts, self.aside.artefacts),
        )


def split_leftovers(inventory: Inventory, catalogue: Catalogue) -> SplitInventory:
    """Split `inventory` into installed parts and leftovers."""
    caches = _Caches(catalogue, inventory)
    packages = {
        item.path
        for item in inventory.containers
        if item.kind in PACKAGES
        and item.owner is None
        and item.path not in inventory.packaged
        and caches.holding(item.path) is None
    }

    def place(path: str, container: str | None) -> str | None:
        """Return the cache or package file that something lies in."""
        cache = caches.holding(path)
        if cache is not None:
            return cache
        return container if container in packages else path if path in packages else None

    held = (item.path for part in _PARTS for item in getattr(inventory, part))
    if not packages and not caches.counted and not any(place(path, None) for path in held):
        return SplitInventory(inventory, Inventory())
    named = _rename_files(inventory, caches)
    kept: dict[str, list[Any]] = {}
    left: dict[str, dict[str, list[Any]]] = {}
    for part in _PARTS:
        for item in getattr(named, part):
            cache = place(item.path, getattr(item, "container", None))
            if cache is None:
                kept.setdefault(part, []).append(item)
            else:
                group = cache if cache not in packages else cache.rpartition("/")[0]
                left.setdefault(group, {}).setdefault(part, []).append(item)
    for folder in caches.counted:
        left.setdefault(folder, {})
    installed = _replace_parts(named, kept)
    asides = {folder: _replace_parts(Inventory(), parts) for folder, parts in sorted(left.items())}
    return SplitInventory(
        installed,
        Inventory(
            binaries=tuple(binary for aside in asides.values() for binary in aside.binaries),
            artefacts=tuple(artefact for aside in asides.values() for artefact in aside.artefacts),
        ),
        tuple(
            _leftover(folder, aside, inventory, caches.entries.get(folder), catalogue)
            for folder, aside in asides.items()
        ),
    )


def in_caches(inventory: Inventory, catalogue: Catalogue) -> Callable[[str], bool]:
    """Return a function: is the folder at a path a cache, or in one?"""
    find = _finder(tuple(catalogue.caches), _cache_variables(catalogue, inventory))
    return lambda folder: find(folder) is not None


def _replace_parts(inventory: Inventory, parts: Mapping[str, Sequence[Any]]) -> Inventory:
    fields: dict[str, Any] = {part: tuple(parts.get(part, ())) for part in _PARTS}
    return replace(inventory, **fields)


def _concatenate(first: Iterable[Any], rest: Iterable[Any]) -> tuple[Any, ...]:
    unowned = (replace(item, owner=None) for item in rest)
    return tuple(sorted((*first, *unowned), key=lambda item: item.path))


def _leftover(
    folder: str,
    aside: Inventory,
    inventory: Inventory,
    cache: CacheEntry | None,
    catalogue: Catalogue,
) -> Leftover:
    totals = next((item for item in inventory.folders if item.path == folder), None)
    if cache is None or totals is None:
        members: list[Binary | Artefact] = [*aside.binaries, *aside.artefacts]
        size = sum(member.size for member in members if member.container is None)
        size += sum(container.size for container in aside.containers)
        files = len(aside.containers) + sum(member.container is None for member in members)
    else:
        size, files = totals.size, totals.files
    held = (*evidence(aside, catalogue), *_by_file_names(aside.containers, catalogue))
    return Leftover(
        folder,
        cache.title if cache is not None else "",
        cache.kind if cache is not None else "packages",
        cache.advice if cache is not None else _NEVER_INSTALLED,
        files,
        size,
        _layer(folder, aside, inventory),
        tuple(sorted(held, key=lambda item: (-item.size, item.path, item.kind, item.detail))),
    )


def _layer(folder: str, aside: Inventory, inventory: Inventory) -> int | None:
    """Return the layer that most of it came with."""
    counts: dict[int, int] = {}
    members: list[Binary | Artefact | Container] = [
        *aside.containers,
        *aside.binaries,
        *aside.artefacts,
    ]
    for member in members:
        layer = inventory.origins.get(member.path)
        if layer is not None:
            counts[layer] = counts.get(layer, 0) + member.size
    if counts:
        return max(counts, key=lambda layer: (counts[layer], -layer))
    return inventory.origins.get(folder)


def _by_file_names(containers: Iterable[Container], catalogue: Catalogue) -> Iterator[Evidence]:
    """Yield evidence from the names of package files, opened or not."""
    for container in containers:
        pattern = _FILE_NAMES.get(container.kind)
        parts = pattern.fullmatch(unquote(container.path.rpartition("/")[2])) if pattern else None
        if parts is None:
            continue
        name, version = parts["name"], parts["version"]
        if container.kind in ("wheel", "conda"):
            match = distribution(name, version, catalogue)
            if match is not None and match.vendor is not None and match.weight == "strong":
                yield _declared(container, match.vendor, match.backend, f"{name} {version}")
            continue
        for owned in catalogue.system_packages.find(name)[:1]:
            if owned.vendor is not None and owned.entry.weight == "strong":
                yield _declared(container, owned.vendor, owned.backend, f"{name} {version}")


def _declared(container: Container, vendor: str, backend: str, detail: str) -> Evidence:
    return Evidence(
        kind="declared",
        vendor=vendor,
        backend=backend,
        path=container.path,
        detail=detail,
        role=PACKAGE_ROLE,
        confidence="medium",
        size=container.size,
    )


# Caches


class _Caches:
    """The caches of one tree."""

    def __init__(self, catalogue: Catalogue, inventory: Inventory) -> None:
        self._find = _finder(tuple(catalogue.caches), _cache_variables(catalogue, inventory))
        #: Folder → its cache entry.
        self.entries: dict[str, CacheEntry] = {}
        self._folders: dict[str, str | None] = {}
        #: Large caches, whatever else is known of them.
        self.counted = {
            cache
            for folder in inventory.folders
            if (cache := self._holding_folder(folder.path)) is not None
        }
        self._inventory = inventory

    @cached_property
    def _used_paths(self) -> frozenset[str]:
        """Paths in caches that are used from outside."""
        inventory = self._inventory
        used = [
            *_search_path_folders(inventory),
            *self._import_folders(inventory),
            *self._link_targets(inventory),
        ]
        return frozenset(path for path in used if self._holding_folder(path))

    def holding(self, path: str) -> str | None:
        """Return the cache that holds `path`; None if there is none or `path` is used outside."""
        cache = self._holding_folder(path.rpartition("/")[0])
        return None if cache is None or self._is_used(path) else cache

    def _is_used(self, path: str) -> bool:
        """Return True if `path`, or a folder above it, is used from outside."""
        while path and self._used_paths:
            if path in self._used_paths:
                return True
            path = path.rpartition("/")[0]
        return False

    def _holding_folder(self, folder: str) -> str | None:
        """Return the cache that a folder is, or lies in."""
        if folder not in self._folders:
            match = self._find(folder)
            self._folders[folder] = None if match is None else match[0]
            if match is not None:
                self.entries[match[0]] = match[1]
        return self._folders[folder]

    def _import_folders(self, inventory: Inventory) -> Iterator[str]:
        """Yield folders that interpreters import from; an environment in a cache is one of them."""
        for path in inventory.python_paths:
            if self._holding_folder(path.interpreter) is None:
                yield from path.folders

    def _link_targets(self, inventory: Inventory) -> Iterator[str]:
        """Yield files and folders of caches that a symbolic link outside leads to."""
        links = {item.path: item.target for item in inventory.links if not item.hard}
        paths = LinkedPaths({binary.path for binary in inventory.binaries}, links)
        for link in links:
            if self._holding_folder(link) is None:
                target = paths.file(link) or paths.folder(link)
                if target:
                    yield target


def _search_path_folders(inventory: Inventory) -> Iterator[str]:
    """Yield folders that loaders, shells and interpreters are configured to search."""
    for name in _SEARCHED:
        for part in re.split(r"[:; ]", inventory.environment.get(name, "")):
            yield part.strip("/")
    yield from (folder.strip("/") for folder in inventory.library_folders)
    yield from (path.strip("/") for path in inventory.preload)


def _rename_files(inventory: Inventory, caches: _Caches) -> Inventory:
    """Rename files to their other name outside of the cache."""
    names = {
        link.target.lstrip("/"): link.path
        for link in inventory.links
        if link.hard and caches.holding(link.path) is None
    }
    moved = {old for old in names if caches.holding(old) is not None}
    if not moved:
        return inventory
    return replace(
        inventory,
        binaries=tuple(
            replace(binary, path=names[binary.path]) if binary.path in moved else binary
            for binary in inventory.binaries
        ),
        artefacts=tuple(
            replace(artefact, path=names[artefact.path]) if artefact.path in moved else artefact
            for artefact in inventory.artefacts
        ),
    )


def _cache_variables(catalogue: Catalogue, inventory: Inventory) -> tuple[tuple[str, int], ...]:
    """Return folders that a variable of the image makes a cache, and the number of its entry.

    Some variables have further values behind a comma (`PT_HPU_RECIPE_CACHE_CONFIG`).
    """
    return tuple(
        (value.rstrip("/"), number)
        for number, owned in enumerate(catalogue.caches)
        for name in owned.entry.variables
        if (value := inventory.environment.get(name, "").partition(",")[0]).startswith("/")
        and value.strip("/")
    )


_Finder = Callable[[str], tuple[str, CacheEntry] | None]


@lru_cache(maxsize=8)
def _finder(entries: tuple[Owned[CacheEntry], ...], named: tuple[tuple[str, int], ...]) -> _Finder:
    """Return a function that finds the outermost cache that a folder is, or lies in."""
    patterns = [
        (_pattern(folder), owned.entry) for owned in entries for folder in owned.entry.folders
    ]
    patterns += [
        (f"^{re.escape(folder.strip('/'))}(?=/|$)", entries[number].entry)
        for folder, number in named
    ]
    any_of = re.compile("|".join(pattern for pattern, _ in patterns)) if patterns else None
    each = [(re.compile(pattern), entry) for pattern, entry in patterns]

    def find(path: str) -> tuple[str, CacheEntry] | None:
        if any_of is None or any_of.search(path) is None:
            return None
        ends = [(match.end(), entry) for pattern, entry in each if (match := pattern.search(path))]
        end, entry = min(ends, key=lambda item: item[0])
        return path[:end], entry

    return find


def _pattern(folder: str) -> str:
    """Return a regular expression for a folder of the catalogue; `*` is a part of one name."""
    parts = (re.escape(part).replace(r"\*", "[^/]*") for part in folder.strip("/").split("/"))
    return ("^" if folder.startswith("/") else "(?:^|(?<=/))") + "/".join(parts) + "(?=/|$)"
