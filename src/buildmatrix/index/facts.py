"""What was read of wheels, kept on disk: one entry per wheel and depth.

An entry answers for one identity, and the claim of a lock is not one: a lock could claim the
hash of another wheel, and every later audit of that one would be answered with these facts.

- `content`: the SHA-256 that was computed over all bytes of the wheel.
- `place`: the URL that the wheel was read from. Its entry has the hash that the lock claimed then,
  and what the server said of the file's version. It answers for the same URL with the same claim;
  with another one, or none, only after the server was asked and says the same of the file.

A new catalogue changes nothing in here, another scanner or reader of wheels does. No entry says
where a wheel came from: identities are hashed.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace

import msgspec

from buildmatrix.http.addresses import HttpAddress
from buildmatrix.index.model import DEPTHS, Depth, FileVersion, WheelFacts
from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

#: Bytes of all entries together; the least recently used ones go first.
LIMIT = 512 << 20
#: Bytes that one entry may unpack to.
_LARGEST = 1 << 30


def content(sha256: str) -> str:
    """The identity of a wheel by its bytes; `sha256` was computed over all of them."""
    return hashlib.sha256(f"content {sha256}".encode()).hexdigest()


def place(address: HttpAddress) -> str:
    """The identity of a wheel by the URL that it was read from, without credentials."""
    return hashlib.sha256(f"place {address.url}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class WheelEntry:
    """What is kept of one wheel, read to one depth."""

    identity: str
    facts: WheelFacts
    #: The bytes that were allowed for it; None for any number.
    most: int | None
    #: Whether more would have been read, had more been allowed.
    limited: bool
    #: The hash that the lock claimed; None for no claim.
    claim: str | None = None
    #: What the server said of the file; None where the bytes themselves are the identity.
    version: FileVersion | None = None

    def answers(self, depth: Depth, most: int | None) -> bool:
        """Whether reading again, to this depth and with these bytes, would tell nothing more."""
        if DEPTHS.index(self.facts.depth) != DEPTHS.index(depth):
            return DEPTHS.index(self.facts.depth) > DEPTHS.index(depth)
        if most == self.most or (most is None and not self.limited):
            return True
        # Without a number, no member is streamed: that is less than any number allows.
        if self.most is None:
            return False
        return not self.limited or (most is not None and most <= self.most)


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
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
    """The facts of wheels that a cache keeps, about `limit` bytes."""

    def __init__(self, cache: Cache, limit: int = LIMIT) -> None:
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'index')}"
        self._store = cache.store("wheels", version, limit=limit, age=90 * DAY, by_use=True)

    def get(self, identity: str, depth: Depth, most: int | None) -> WheelEntry | None:
        """What is kept of a wheel to this depth at least; its facts cost nothing."""
        for deeper in DEPTHS[DEPTHS.index(depth) :]:
            entry = self._read(identity, deeper)
            if entry is not None and entry.answers(depth, most):
                stats = replace(entry.facts.inventory.stats, bytes_read=0, seconds=0.0)
                stats = replace(stats, cached=stats.files)
                inventory = replace(entry.facts.inventory, stats=stats)
                return replace(entry, facts=replace(entry.facts, inventory=inventory, bytes_read=0))
        return None

    def put(self, entry: WheelEntry) -> None:
        """Keep what was read of a wheel, unless the same is kept already or more."""
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
