"""What an index said before, kept on disk: pages and metadata, never files.

An entry is named after its address without credentials. Its first 32 bytes are the SHA-256 of the
rest, so one that was cut short or damaged is a miss. A folder that cannot be read or written costs
requests, and nothing else.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from buildmatrix.inventory.writing import write_atomically

#: Bytes of all entries together; the oldest go first.
LIMIT = 256 << 20
#: Changes with the layout of `Kept`.
_VERSION = "1"
_DIGEST = hashlib.sha256().digest_size


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """One answer of a server."""

    #: None for what it does not have.
    body: bytes | None
    content_type: str
    #: Where it came from in the end; what its links are relative to.
    url: str
    etag: str | None
    #: Seconds since the epoch until it can be used without asking.
    fresh_until: float


class Cache:
    """The answers kept in `folder`; None keeps nothing."""

    def __init__(self, folder: Path | None, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._written = False

    def get(self, key: str) -> Kept | None:
        """What was kept under `key`, however old."""
        if self._folder is None:
            return None
        try:
            data = self._place(self._folder, key).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(memoryview(data)[_DIGEST:]).digest() != data[:_DIGEST]:
            return None
        try:
            return msgspec.msgpack.decode(memoryview(data)[_DIGEST:], type=Kept)
        except msgspec.MsgspecError:
            return None

    def put(self, key: str, kept: Kept) -> None:
        """Keep an answer."""
        if self._folder is None:
            return
        data = msgspec.msgpack.encode(kept)
        path = self._place(self._folder, key)
        with suppress(OSError):
            # What a private index says is for nobody else on this machine.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, hashlib.sha256(data).digest() + data)
            self._written = True

    def prune(self) -> None:
        """Remove the oldest entries above the limit, if any was written."""
        if self._folder is None or not self._written:
            return
        entries = []
        for path in (self._folder / _VERSION).glob("*"):
            with suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in entries) - self._limit
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            with suppress(OSError):
                path.unlink()
                excess -= size

    @staticmethod
    def _place(folder: Path, key: str) -> Path:
        return folder / _VERSION / hashlib.sha256(key.encode()).hexdigest()


def fresh_until(cache_control: str, most: float) -> float | None:
    """Until when an answer of now with this `Cache-Control` can be used; None: not to be kept.

    `most`: seconds, also for an answer that says nothing (RFC 9111, 4.2 and 5.2.2).
    """
    seconds = most
    for directive in cache_control.lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name == "no-store":
            return None
        if name == "no-cache":
            seconds = 0.0
        elif name == "max-age" and value.isascii() and value.isdigit():
            seconds = min(seconds, float(value[:9]))
    return time.time() + seconds
