"""The entries of tar archives, read in place.

Formats: POSIX pax and GNU tar (the standard library reads them).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from tarfile import InvalidHeaderError, TarFile  # type: ignore[attr-defined]  # typeshed lacks it
from typing import TYPE_CHECKING, Literal

from buildmatrix.trees.archive import LARGEST_HEADER, Slice, Stream
from buildmatrix.trees.base import Unreadable

if TYPE_CHECKING:
    # The scanner runs on Python 3.10, too.
    from typing import Self

#: Members of one archive; an image of a desktop has 300,000.
MOST_MEMBERS = 2_000_000
# What tarfile raises on bytes that lie.
_BROKEN = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Who owns an entry of an archive, and its permission bits, with setuid, setgid and sticky."""

    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class TarMember:
    """One entry of an archive. `name` as stored; see `plain` for a path that can be trusted."""

    name: str
    kind: Literal["file", "folder", "symlink", "hardlink", "other"]
    #: The bytes of a file; None for what is no file, and for a sparse one, which is not read.
    data: Slice | None = None
    #: Target of a link, as stored.
    target: str = ""
    #: None where whoever read the archive had no use for them.
    attributes: Attributes | None = None


class _Header(tarfile.TarInfo):
    """A header that is an error where it is broken; tarfile takes such a header for the end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> Self:
        """See `tarfile.TarInfo`. Raises `Unreadable`."""
        try:
            return super().fromtarfile(tarfile)
        except InvalidHeaderError as error:
            raise Unreadable(f"no readable tar archive: {error}") from error


def members(archive: Slice) -> Iterator[TarMember]:
    """The entries of the uncompressed tar archive in `archive`, in order.

    Raises `Unreadable` when it is none, is cut short, or has more than `MOST_MEMBERS`.
    """
    try:
        with tarfile.TarFile(
            fileobj=Stream(archive, LARGEST_HEADER),
            encoding="utf-8",
            errors="surrogateescape",
            tarinfo=_Header,
        ) as tar:
            count = 0
            while (info := tar.next()) is not None:
                # tarfile remembers every entry: 1.5 kB for each of maybe a million.
                tar.members = []  # type: ignore[attr-defined]  # typeshed lacks this old idiom
                count += 1
                if count > MOST_MEMBERS:
                    raise Unreadable(f"the archive has more than {MOST_MEMBERS} entries")
                yield _member(info, archive)
            # tarfile takes whatever is no header for the end; the end is a block of zeros.
            block = archive.read(tar.offset, tarfile.BLOCKSIZE)
            if block.strip(b"\0") or len(block) < tarfile.BLOCKSIZE:
                raise Unreadable("the archive is truncated or broken: it has no end mark")
            _check_end(archive, tar.offset + tarfile.BLOCKSIZE)
    except _BROKEN as error:
        raise Unreadable(f"no readable tar archive: {error}") from error


def _check_end(archive: Slice, offset: int) -> None:
    """Two blocks of zeros end an archive. Whether a lone one does is for each tool to decide."""
    try:
        block = archive.read(offset, tarfile.BLOCKSIZE)
    except Unreadable:
        return  # Nothing follows.
    if block.strip(b"\0"):
        raise Unreadable("the archive is broken: its end mark is half of one, and more follows")


def _member(info: tarfile.TarInfo, archive: Slice) -> TarMember:
    if info.size < 0:  # A header of pax may say so, and tarfile reads on in the entry itself.
        raise Unreadable("the archive is broken: an entry has less than no bytes")
    attributes = _attributes(info.mode & 0o7777, info.uid, info.gid)
    if info.issym():
        return TarMember(info.name, "symlink", None, info.linkname, attributes)
    if info.islnk():
        return TarMember(info.name, "hardlink", None, info.linkname, attributes)
    if info.isdir():
        return TarMember(info.name, "folder", attributes=attributes)
    if info.isreg():
        data = None if info.issparse() else Slice(archive, info.offset_data, info.size)
        return TarMember(info.name, "file", data, attributes=attributes)
    return TarMember(info.name, "other", attributes=attributes)


@lru_cache(maxsize=4096)
def _attributes(mode: int, uid: int, gid: int) -> Attributes:
    """One object for the many entries that have the same."""
    return Attributes(mode, uid, gid)
