"""Cache beside a target's inventory, from which `why` and `diff` answer at once.

An entry holds the stamps (device, inode, size, mtime, ctime) of all files that it was made from,
including those of the catalogue. If one differs, the entry is remade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.question import Vendors
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.why.model import Graph
from buildmatrix.store.cache import Store
from buildmatrix.threads import prepare_type

T = TypeVar("T")
Stamp = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """A source as a graph, with its evidence."""

    source: str
    graph: Graph
    evidence: tuple[Evidence, ...]
    vendors: Vendors
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class _StampedEntry:
    stamps: tuple[Stamp | None, ...]
    #: All files that it was made from.
    files: tuple[str, ...]
    #: The encoded value.
    made: msgspec.Raw


_ENTRY = msgspec.msgpack.Decoder(prepare_type(_StampedEntry))


def load_or_make(
    store: Store,
    key: str,
    files: Iterable[Path],
    make: Callable[[], tuple[T, Iterable[Path]]],
    kind: type[T],
    *,
    fits: Callable[[T], bool] = lambda _: True,
) -> T:
    """Return the cached value of a `kind`, or the result of `make`, which is then cached.

    `files` are the known files that it is made from; `make` returns the others. A value refused by
    `fits` is remade.
    """
    before = tuple(files)
    present = load_unchanged(store, key, before, kind)
    if present is not None and fits(present):
        return present
    made, further = make()
    names = tuple(dict.fromkeys(map(str, (*before, *further))))
    with suppress(UnicodeEncodeError):
        store.save(
            key,
            _StampedEntry(_take_stamps(names), names, msgspec.Raw(msgspec.msgpack.encode(made))),
        )
    return made


def load_unchanged(store: Store, key: str, files: Iterable[Path], kind: type[T]) -> T | None:
    """Return the cached value of a `kind`, if made from `files` and no file has changed."""
    entry = store.load(key, _ENTRY)
    if entry is None or not {str(path) for path in files} <= set(entry.files):
        return None
    if entry.stamps != _take_stamps(entry.files):
        return None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.msgpack.decode(entry.made, type=prepare_type(kind))
    return None


def _take_stamps(files: Iterable[str]) -> tuple[Stamp | None, ...]:
    return tuple(_take_stamp(path) for path in files)


def _take_stamp(path: str) -> Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    return path, status.st_dev, status.st_ino, status.st_size, *times
