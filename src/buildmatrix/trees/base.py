"""The one interface behind which every tree looks alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Self  # Python 3.10 runs this, and has none


class Unreadable(OSError):
    """Something in a tree that exists and cannot be read; the text is the reason, one sentence."""


def reason(error: OSError) -> str:
    """Why reading failed, in words, without the path (the caller names that)."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


def defect(error: Exception) -> str:
    """The reason for an unexpected failure: what one file holds must not affect other files."""
    text = f"{type(error).__name__}: {error}"[:200]
    return f"a defect of the reader ({text})"


@dataclass(frozen=True, slots=True)
class File:
    """A regular file. `path` is relative to the tree's root, with `/` and no leading slash.

    A name that is not UTF-8 keeps its bytes as lone surrogates (`os.fsdecode`), so that `open`
    finds the file again.
    """

    path: str
    #: Bytes.
    size: int
    #: Device and inode of a file with several names (hard links); None for a file with one name.
    identity: tuple[int, int] | None = None
    #: Differs whenever the bytes may differ from those that had the same path and stamp before;
    #: None where the tree does not know.
    stamp: bytes | None = field(default=None, compare=False)
    #: Bytes that it takes in an archive that packs each file by itself; None in other trees.
    packed: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link; `target` as stored."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A name that could not be listed or must not be read, with the reason in one sentence."""

    path: str
    why: str


class Closing(ABC):
    """What holds a file, or the like, and is closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Free what is held; it cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Readable(Protocol):
    """What decompressors are."""

    def read(self, length: int, /) -> bytes:
        """At most `length` bytes; none at the end."""
        ...


class RandomAccess(Protocol):
    """Random access to the bytes of one file; what `elf.source.ByteSource` asks for."""

    #: Bytes handed out so far, for statistics.
    bytes_read: int

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, or fewer where the file ends. May raise OSError."""
        ...


class Tree(Protocol):
    """A read-only set of files with random access."""

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """Every regular file and symbolic link, in an order that only the names decide.

        Folders are not listed. What is not a regular file, link or folder is never opened and is
        not part of a tree.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        """The bytes of the regular file `path`, as `walk` spelled it. Raises OSError."""
        ...

    def read_bytes(self, path: str, limit: int) -> bytes:
        """The whole file; raises `Unreadable` when it has more than `limit` bytes, or OSError."""
        with self.open(path) as source:
            data = source.read(0, limit + 1)
        if len(data) > limit:
            raise too_large(limit)
        return data

    def sha256(self, path: str) -> bytes | None:  # noqa: ARG002 (most trees do not know)
        """The SHA-256 of the file `path` where the tree knows it; None where reading it tells."""
        return None


def too_large(limit: int) -> Unreadable:
    """What is wrong with a file that is read whole and has more than `limit` bytes."""
    return Unreadable(f"larger than {limit} bytes, which no honest file of its kind is")
