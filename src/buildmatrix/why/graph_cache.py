"""What was made of a target's inventory, kept beside it: `why` and `diff` then answer at once.

An entry holds the stamps (device, inode, size, mtime, ctime) of all files that it was made from,
the code and the catalogue among them. When one differs the entry is made anew. Nothing is lost with
it: a broken or missing entry is a miss, and one that cannot be written is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

import buildmatrix
from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.why.graph import Graph
from buildmatrix.why.question import Vendors

T = TypeVar("T")
Stamp = tuple[str, int, int, int, int, int]
#: What an entry depends on beside the files of its target.
_CODE = (
    *("graph", "catalogue", "catalogue/data", "inventory", "pipeline"),
    *("comparison", "compat", "rules"),
)
_LARGEST = 1 << 28


@dataclass(frozen=True, slots=True)
class Joined:
    """A source as a graph, with what the catalogue says of it."""

    source: str
    graph: Graph
    evidence: tuple[Evidence, ...]
    vendors: Vendors
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    stamps: tuple[Stamp | None, ...]
    #: All files that it was made from.
    files: tuple[str, ...]
    #: What was made, encoded.
    made: msgspec.Raw


def kept(
    place: Path,
    files: Iterable[Path],
    make: Callable[[], tuple[T, Iterable[Path]]],
    kind: type[T],
    *,
    fits: Callable[[T], bool] = lambda _: True,
) -> T:
    """What `place` keeps of a `kind`, or what `make` returns, which is then kept.

    `files` are those that it is made from and that are known before; `make` tells the others.
    What `fits` refuses is made anew.
    """
    before = tuple(files)
    found = unchanged(place, before, kind)
    if found is not None and fits(found):
        return found
    made, further = make()
    names = tuple(dict.fromkeys(map(str, (*before, *further))))
    stamps = _stamps(names)
    with suppress(OSError, UnicodeEncodeError):
        from buildmatrix.inventory.writing import write_atomically

        fresh = _Entry(stamps, names, msgspec.Raw(msgspec.msgpack.encode(made)))
        write_atomically(place, msgspec.msgpack.encode(fresh))
    return made


def unchanged(place: Path, files: Iterable[Path], kind: type[T]) -> T | None:
    """What `place` keeps of a `kind`, where it was made from `files` and no file changed since."""
    entry = _read(place)
    if entry is None or not {str(path) for path in files} <= set(entry.files):
        return None
    if entry.stamps != _stamps(entry.files):
        return None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.msgpack.decode(entry.made, type=kind)
    return None


def _read(place: Path) -> _Entry | None:
    try:
        if place.stat().st_size > _LARGEST:
            return None
        return msgspec.msgpack.decode(place.read_bytes(), type=_Entry)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _stamps(files: Iterable[str]) -> tuple[Stamp | None, ...]:
    package = Path(buildmatrix.__file__).parent
    code = (path for name in _CODE for path in sorted((package / name).glob("*.*")))
    return tuple(_stamp(path) for path in (*map(Path, files), *code))


def _stamp(path: Path) -> Stamp | None:
    try:
        one = path.stat()
    except OSError:
        return None
    return str(path), one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns
