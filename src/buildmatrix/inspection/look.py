"""One file → everything that is told of it. Reads as a scan does, and judges nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import PACKAGE_ROLE, evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.inspection.model import Imports, Inspection, Share
from buildmatrix.inspection.symbols import SymbolsUnread, imports
from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.model import Inventory, Unread
from buildmatrix.inventory.names import readable
from buildmatrix.trees.base import File, Source, Symlink, Tree, Trouble, reason
from buildmatrix.trees.directory import DirectoryTree
from buildmatrix.trees.wheel import WheelTree

if TYPE_CHECKING:
    from buildmatrix.store.facts import FactCache

#: What makes a file, or a part of one, a vendor's; the other kinds only ask for something.
_HOLDS = ("bundled", "tool", "device-code", "static")


def inspect(path: Path, catalogue: Catalogue, cache: FactCache | None = None) -> Inspection:
    """Everything about the ELF object, file of device code, or wheel at `path`.

    Nothing of it is executed. Raises `UsageError` for what is none of these, `UndecidedError` for
    what cannot be read.
    """
    if not path.exists():
        raise UsageError(f"there is no {path}")
    if not path.is_file():
        raise UsageError(f"{path} is no file; `buildmatrix scan` reads folders")
    try:
        return _wheel(path, catalogue, cache) if path.suffix == ".whl" else _file(path, catalogue)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error


class _OneFile(Tree):
    """The file at `path`, under its absolute path: a folder such as /opt/rocm says much."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._folder = DirectoryTree(self._path.parent)
        self._size = self._path.stat().st_size

    def close(self) -> None:
        self._folder.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        yield File(os.fspath(self._path).lstrip("/"), self._size)

    def open(self, path: str) -> AbstractContextManager[Source]:
        return self._folder.open(self._path.name)


def _file(path: Path, catalogue: Catalogue) -> Inspection:
    tree = _OneFile(path)
    try:
        inventory = collect(tree)
    finally:
        tree.close()
    if not (inventory.binaries or inventory.artefacts or inventory.unread):
        raise UsageError(
            f"{path} is no ELF object, no file of device code and no wheel; nothing to inspect"
        )
    unread = list(inventory.unread)
    symbols: tuple[Imports, ...] = ()
    if inventory.binaries:
        try:
            symbols = imports(path)
        except SymbolsUnread as error:
            unread.append(
                Unread(readable(str(path)), f"the imported symbols are not known: {error}")
            )
    return Inspection(
        path=readable(str(path)),
        size=inventory.stats.bytes_total,
        kind=_kind(inventory),
        binaries=inventory.binaries,
        artefacts=inventory.artefacts,
        imports=symbols,
        evidence=evidence(inventory, catalogue),
        unread=tuple(unread),
    )


def _kind(inventory: Inventory) -> str:
    if inventory.binaries:
        return "elf"
    return inventory.artefacts[0].kind if inventory.artefacts else "unreadable"


def _wheel(path: Path, catalogue: Catalogue, cache: FactCache | None) -> Inspection:
    def scan() -> Inventory:
        with WheelTree(path) as tree:
            return collect(tree)

    if cache is None:
        inventory = scan()
    else:
        from buildmatrix.store.facts import digest

        inventory = cache.inventory(f"wheel {digest(path)}", scan)
    found = evidence(inventory, catalogue)
    return Inspection(
        path=readable(str(path)),
        size=path.stat().st_size,
        kind="wheel",
        binaries=inventory.binaries,
        artefacts=inventory.artefacts,
        distributions=inventory.distributions,
        evidence=found,
        shares=_shares(found),
        unread=inventory.unread,
    )


def _shares(found: tuple[Evidence, ...]) -> tuple[Share, ...]:
    """What each vendor has in each role; a file's bytes count once for a vendor.

    A file that is the vendor's as a whole counts as that, not for the device code in it.
    """
    order = {kind: number for number, kind in enumerate(_HOLDS)}
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    homes: dict[tuple[str, str], str] = {}
    for item in sorted(
        (item for item in found if item.kind in order and item.role != PACKAGE_ROLE),
        key=lambda item: order[item.kind],
    ):
        # What was linked in statically has no size of its own: it is told beside the rest.
        role = item.role
        if item.kind != "static":
            role = homes.setdefault((item.vendor, item.path), role)
        groups.setdefault((item.vendor, item.backend, role), []).append(item)
    shares = []
    for (vendor, backend, role), items in groups.items():
        sizes: dict[str, int] = {}
        for item in items:
            sizes.setdefault(item.path, item.size)
        architectures = {name for item in items for name in item.architectures}
        shares.append(
            Share(vendor, backend, role, sum(sizes.values()), len(sizes),
                  tuple(sorted(architectures)))
        )  # fmt: skip
    return tuple(sorted(shares, key=lambda one: (-one.size, one.vendor, one.backend, one.role)))
