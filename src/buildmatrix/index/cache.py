"""What an index said before, kept on disk: pages and metadata, never files."""

from __future__ import annotations

import time

import msgspec

from buildmatrix.store.cache import DAY, Cache, Store
from buildmatrix.threads import prepare_type

#: Bytes of all entries together; the oldest go first.
LIMIT = 256 << 20
#: Changes with the layout of `Page`.
_VERSION = "2"


class Page(msgspec.Struct, frozen=True, array_like=True):
    """One answer of a server."""

    #: None for what it does not have.
    body: bytes | None
    content_type: str
    #: Where it came from in the end; what its links are relative to.
    url: str
    etag: str | None
    #: Seconds since the epoch until it can be used without asking.
    fresh_until: float


PAGE = msgspec.msgpack.Decoder(prepare_type(Page))


def pages_of(cache: Cache, limit: int = LIMIT) -> Store:
    """The pages that a cache keeps; keys are addresses without credentials."""
    return cache.store("index", _VERSION, limit=limit, age=90 * DAY)


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
