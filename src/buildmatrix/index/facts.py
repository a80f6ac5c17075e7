"""What was read of wheels, kept on disk: one entry per wheel and depth.

An entry answers for one identity, and a lock's claim is none: whoever writes a lock could claim the
hash of another wheel, and every later audit of that one would be answered with these facts.

- `content`: the SHA-256 that was computed over all bytes of the wheel.
- `place`: the URL that the wheel was read from. Its entry has the hash that the lock claimed then,
  and what the server said of the file's version. It answers for the same URL with the same claim;
  with another one, or none, only after the server was asked and says the same of the file.

Entries lie in a folder that is named after the bytes of the scan core, as in `store.facts`: a new
catalogue changes nothing in here, another scanner does. The first 32 bytes of an entry are the
SHA-256 of the rest, so one that was cut short or damaged is a miss. No entry says where a wheel
came from: identities are hashed. A folder that cannot be read or written costs requests only.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from buildmatrix.index.addresses import Address
from buildmatrix.index.model import DEPTHS, Depth, FileVersion, WheelFacts
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.inventory.writing import write_atomically
from buildmatrix.store.facts import ABANDONED, scanner

#: Bytes of all entries together; the least recently used ones go first.
LIMIT = 512 << 20
#: Changes with the layout of an entry, and with what a depth means.
_VERSION = f"{SCHEMA} wheel/6"
_DIGEST = hashlib.sha256().digest_size
#: Bytes that one entry may unpack to.
_LARGEST = 1 << 30


def content(sha256: str) -> str:
    """The identity of a wheel by its bytes; `sha256` was computed over all of them."""
    return hashlib.sha256(f"content {sha256}".encode()).hexdigest()


def place(address: Address) -> str:
    """The identity of a wheel by the URL that it was read from, without credentials."""
    return hashlib.sha256(f"place {address.url}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry."""

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
    #: How it is laid out; an entry that is laid out in another way is no answer.
    layout: str = _VERSION

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
_KEPT = msgspec.msgpack.Decoder(Kept)


class FactsCache:
    """The facts of wheels in `folder`, about `limit` bytes; None keeps nothing."""

    def __init__(self, folder: Path | None, limit: int = LIMIT) -> None:
        self._folder = folder / scanner() if folder is not None else None
        self._limit = limit
        self._is_changed = False

    def get(self, identity: str, depth: Depth, most: int | None) -> Kept | None:
        """What is kept of a wheel to this depth at least; its facts cost nothing."""
        for deeper in DEPTHS[DEPTHS.index(depth) :]:
            kept = self._read(identity, deeper)
            if kept is not None and kept.answers(depth, most):
                stats = replace(kept.facts.inventory.stats, bytes_read=0, seconds=0.0)
                stats = replace(stats, cached=stats.files)
                inventory = replace(kept.facts.inventory, stats=stats)
                return replace(kept, facts=replace(kept.facts, inventory=inventory, bytes_read=0))
        return None

    def put(self, kept: Kept) -> None:
        """Keep what was read of a wheel, unless the same is kept already or more."""
        if self._folder is None:
            return
        depth = kept.facts.depth
        known = self._read(kept.identity, depth)
        if (
            known is not None
            and (known.claim, known.version) == (kept.claim, kept.version)
            and known.answers(depth, kept.most)
        ):
            return
        bare = replace(kept, facts=replace(kept.facts, bytes_read=0))
        data = zlib.compress(msgspec.msgpack.encode(bare), 1)
        path = self._place(self._folder, kept.identity, depth)
        with suppress(OSError):
            # What a private index holds is for nobody else on this machine.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, hashlib.sha256(data).digest() + data)
            self._is_changed = True

    def _read(self, identity: str, depth: Depth) -> Kept | None:
        if self._folder is None:
            return None
        path = self._place(self._folder, identity, depth)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        packed = memoryview(data)[_DIGEST:]
        if hashlib.sha256(packed).digest() != data[:_DIGEST]:
            return None
        try:
            plain = zlib.decompressobj().decompress(packed, _LARGEST)
            kept = _KEPT.decode(plain)
        except (msgspec.MsgspecError, zlib.error, RecursionError):
            return None
        if (kept.layout, kept.identity, kept.facts.depth) != (_VERSION, identity, depth):
            return None
        with suppress(OSError):  # a cache that is read-only still serves
            os.utime(path)
        return kept

    @staticmethod
    def _place(folder: Path, identity: str, depth: Depth) -> Path:
        return folder / f"{identity}-{depth}"

    def prune(self) -> None:
        """Remove what killed runs left, then the least recently used entries above the limit.

        Where nothing was added there is nothing to do.
        """
        if self._folder is None or not self._is_changed:
            return
        entries: list[tuple[float, int, Path]] = []
        now = time.time()
        for path in self._folder.parent.glob("*/*"):
            with suppress(OSError):
                status = path.stat()
                if not path.name.startswith("."):
                    entries.append((status.st_mtime, status.st_size, path))
                elif now - status.st_mtime > ABANDONED:
                    path.unlink(missing_ok=True)
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            with suppress(OSError):
                path.unlink(missing_ok=True)
                excess -= size
