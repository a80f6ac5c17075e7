"""Interfaces of trees, and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 runs this, and has none


class Unreadable(OSError):
    """Error for an existing part of a tree that cannot be read; the text is the reason."""


def reason(error: OSError) -> str:
    """Return the reason of a failure in words, without the path, which the caller adds."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


def defect(error: Exception) -> str:
    """Return the reason for an unexpected error: one file must not affect the others."""
    text = f"{type(error).__name__}: {error}"[:200]
    return f"a defect of the reader ({text})"


@dataclass(frozen=True, slots=True)
class File:
    """A regular file. `path` is relative to the tree's root, with `/` and no leading slash.

    A name that is not UTF-8 keeps its bytes as lone surrogates (`os.fsdecode`), so that `open`
    finds the file again.
    """

    path: str
    #: Size in bytes.
    size: int
    #: Device and inode of a file with several hard links; None for a file with one name.
    identity: tuple[int, int] | None = None
    #: Changes whenever the bytes at the path may have changed; None if the tree cannot tell.
    stamp: bytes | None = field(default=None, compare=False)
    #: Compressed size in an archive that compresses each file separately; None in other trees.
    packed: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link with its target as stored."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A name that could not be listed or must not be read, with the reason in one sentence."""

    path: str
    why: str


class Closing(ABC):
    """Base of resources that are closed at the end of a `with` statement."""

    @abstractmethod
    def close(self) -> None:
        """Free the resource; it cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Readable(Protocol):
    """Sequential reader, such as a decompressor."""

    def read(self, length: int, /) -> bytes:
        """Return the next bytes, at least one and at most `length`; none only at the end."""
        ...


class ByteSource(Protocol):
    """Random access to the bytes of one file, a member of a wheel, or ranges of an index."""

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the end of file. May raise OSError."""
        ...


class RandomAccess(ByteSource, Protocol):
    """A source that counts."""

    #: Bytes returned so far, for statistics.
    bytes_read: int


class Tree(Protocol):
    """A read-only set of files with random access."""

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """Yield every regular file and symbolic link, in an order that depends only on the names.

        Folders are not listed. Devices, FIFOs and sockets are never opened and not part of a tree.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        """Open the regular file `path`, as spelled by `walk`. Raises OSError."""
        ...

    def read_bytes(self, path: str, limit: int) -> bytes:
        """Read the whole file. Raises `Unreadable` above `limit` bytes, or OSError."""
        with self.open(path) as source:
            data = source.read(0, limit + 1)
        if len(data) > limit:
            raise too_large(limit)
        return data

    def sha256(self, path: str) -> bytes | None:  # noqa: ARG002 (most trees do not know)
        """Return the file's SHA-256 if the tree knows it without reading; else None."""
        return None


def too_large(limit: int) -> Unreadable:
    """Return the error for a file to read whole that has more than `limit` bytes."""
    return Unreadable(f"larger than the limit of {limit} bytes")
