"""Facts of wheels that were read where they lie, and their cache on disk."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.binaries.model import Elf
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.model import SCHEMA, Inventory
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.net.http.addresses import HttpAddress

__all__ = ["DEPTHS", "Depth", "FileVersion", "Member", "Tables", "WheelFacts"]


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
    """Version of a file according to its server (RFC 9110, 8.8)."""

    size: int
    etag: str | None = None
    #: `Last-Modified`, unparsed.
    modified: str | None = None

    def is_same(self, version: FileVersion) -> bool:
        """Return True if both have the same bytes: a size alone, or a weak ETag, is no proof."""
        is_strong = self.etag is not None and not self.etag.startswith("W/")
        return (is_strong or self.modified is not None) and self == version


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """Facts of one wheel, to the depth at which it was read."""

    filename: str
    #: Hex: of all bytes if they were read, else the lock's claim; None without a claim.
    sha256: str | None
    #: Bytes of the wheel.
    size: int
    depth: Depth
    inventory: Inventory
    #: All files of the wheel, sorted by path.
    members: tuple[Member, ...]
    #: Bytes received over the network for this result; 0 from the cache and for local files.
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one library of a wheel."""

    #: None for a file that is not a library, and for unsupported locations of the tables.
    elf: Elf | None
    #: Bytes of the wheel that were read, from a cache or not.
    cost: int = 0


# Cache of facts: one entry per wheel and depth.
#
# An entry is valid for one identity. The claim of a lock is not an identity: a lock could claim the
# hash of another wheel, and every later audit of that one would get these facts.
#
# - `content_key`: the SHA-256 that was computed over all bytes of the wheel.
#
# - `place_key`: the URL that the wheel was read from. Its entry has the hash that the lock claimed
# then, and the server's version of the file. It is valid for the same URL with the same claim; with
# another one, or none, only if the server confirms the version.
#
# A new catalogue invalidates nothing here, another scanner or reader of wheels does. No entry shows
# where a wheel came from: identities are hashed.


#: Bytes of all entries together; the least recently used ones go first.
WHEEL_CACHE_LIMIT = 512 << 20
#: Maximum unpacked bytes of an entry.
_LARGEST = 1 << 30


def content_key(sha256: str) -> str:
    """Return the identity of a wheel by its bytes; `sha256` was computed over all of them."""
    return hashlib.sha256(f"content {sha256}".encode()).hexdigest()


def place_key(address: HttpAddress) -> str:
    """Return the identity of a wheel by its URL, without credentials."""
    return hashlib.sha256(f"place {address.url}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class WheelEntry:
    """Cached facts of one wheel, at one depth."""

    identity: str
    facts: WheelFacts
    #: The limit of bytes; None for no limit.
    most: int | None
    #: True if more bytes would have been read within a larger limit.
    limited: bool
    #: Hash claimed by the lock; None without a claim.
    claim: str | None = None
    #: Version according to the server; None if the bytes themselves are the identity.
    version: FileVersion | None = None

    def answers(self, depth: Depth, most: int | None) -> bool:
        """Return True if reading again, to this depth and with this limit, would add nothing."""
        if DEPTHS.index(self.facts.depth) != DEPTHS.index(depth):
            return DEPTHS.index(self.facts.depth) > DEPTHS.index(depth)
        if most == self.most or (most is None and not self.limited):
            return True
        # Without a limit, no member is streamed: that is less than with any limit.
        if self.most is None:
            return False
        return not self.limited or (most is not None and most <= self.most)


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_ENTRY = msgspec.msgpack.Decoder(prepare_type(WheelEntry))


class _Packed:
    """Decodes what `WheelCache` packs."""

    @staticmethod
    def decode(data: bytes | memoryview, /) -> WheelEntry:
        try:
            return _ENTRY.decode(zlib.decompressobj().decompress(data, _LARGEST))
        except zlib.error as error:
            raise msgspec.DecodeError(str(error)) from error


class WheelCache:
    """Cached facts of wheels, in about `limit` bytes."""

    def __init__(self, cache: Cache, limit: int = WHEEL_CACHE_LIMIT) -> None:
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'locks/index')}"
        self._store = cache.store("wheels", version, limit=limit, age=90 * DAY, by_use=True)

    def get(self, identity: str, depth: Depth, most: int | None) -> WheelEntry | None:
        """Return the cached facts of a wheel, at least at this depth; they cost no bytes."""
        for deeper in DEPTHS[DEPTHS.index(depth) :]:
            entry = self._read(identity, deeper)
            if entry is not None and entry.answers(depth, most):
                stats = replace(entry.facts.inventory.stats, bytes_read=0, seconds=0.0)
                stats = replace(stats, cached=stats.files)
                inventory = replace(entry.facts.inventory, stats=stats)
                return replace(entry, facts=replace(entry.facts, inventory=inventory, bytes_read=0))
        return None

    def put(self, entry: WheelEntry) -> None:
        """Store facts of a wheel, unless the same or more is stored already."""
        if not self._store.is_enabled:
            return
        depth = entry.facts.depth
        present = self._read(entry.identity, depth)
        if (
            present is not None
            and (present.claim, present.version) == (entry.claim, entry.version)
            and present.answers(depth, entry.most)
        ):
            return
        bare = replace(entry, facts=replace(entry.facts, bytes_read=0))
        packed = zlib.compress(msgspec.msgpack.encode(bare), 1)
        self._store.put(f"{depth} {entry.identity}", packed)

    def _read(self, identity: str, depth: Depth) -> WheelEntry | None:
        return self._store.load(f"{depth} {identity}", _Packed)
