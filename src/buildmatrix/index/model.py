"""What is known of a wheel that was read where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.binaries.model import Elf
from buildmatrix.inventory.model import Inventory
from buildmatrix.trees.wheel import Member

__all__ = ["DEPTHS", "Depth", "FileVersion", "Member", "SourceFacts", "Tables", "WheelFacts"]

#: How much of a wheel is read.
#:
#: - `listing`: its central directory and its metadata folder. Every file that could matter is in
#:   `Inventory.closed`.
#: - `heads`: also the beginning of every file that may be a binary (small ones whole), its Python
#:   files where they are few, and, as far as bytes may be spent, large binaries up to the first
#:   device code. `Elf.read` says how far.
#: - `whole`: everything, once.
Depth = Literal["listing", "heads", "whole"]
DEPTHS: tuple[Depth, ...] = ("listing", "heads", "whole")


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What a server says of a file, and changes when it changes the file (RFC 9110, 8.8)."""

    size: int
    etag: str | None = None
    #: `Last-Modified`, as it came.
    modified: str | None = None

    def is_same(self, version: FileVersion) -> bool:
        """Whether both are about the same bytes: a size alone, or a weak ETag, says too little."""
        is_strong = self.etag is not None and not self.etag.startswith("W/")
        return (is_strong or self.modified is not None) and self == version


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """The facts of one wheel, as deep as it was read."""

    filename: str
    #: Hex: of all bytes where they were read, else as the lock claims; None where it claims none.
    sha256: str | None
    #: Bytes of the wheel.
    size: int
    depth: Depth
    inventory: Inventory
    #: All files of the wheel, sorted by path.
    members: tuple[Member, ...]
    #: Bytes that came over the network for this answer; 0 from the cache and for local files.
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Facts of a source distribution's files; no vendor is known here."""

    #: The `Requires-Dist` lines of all wheels that are built of it; None where a build decides.
    requires: tuple[str, ...] | None
    #: Binaries, device code and archives that are in it.
    built: tuple[str, ...]
    #: Suffixes of files, without the dot, each with the first path.
    suffixes: tuple[tuple[str, str], ...]
    #: Paths and texts of what decides how it is built.
    build_files: tuple[tuple[str, str], ...]
    #: Names of libraries as constants in its code, each with the first path.
    libraries: tuple[tuple[str, str], ...]
    #: Bytes of the archive.
    size: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one library of a wheel."""

    #: None for what is no library, and where they lie where they are not looked for.
    elf: Elf | None
    #: Bytes of the wheel that were looked at, whether they came from a cache or not.
    cost: int = 0
