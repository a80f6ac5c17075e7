"""Resolutions of the last minutes, so that an audit that is run again does not ask the index again.

An entry is addressed by everything that decided it. It is young for as long as PyPI lets its pages
be kept (`Cache-Control: max-age=600`), as uv's own cache keeps them; offline, any age will do.
"""

from __future__ import annotations

import re

from buildmatrix.store.cache import DAY, Cache

#: Seconds.
YOUNG = 600.0
#: Seconds after which an entry is not used, even offline.
_OLD = 30 * DAY
#: Bytes of all entries together; the largest real ones have some 2 MB.
_LIMIT = 256 << 20
#: An address with a query: a token or a signature, with which anybody can get the file.
_SIGNED = re.compile(rb"://[^\s\"'\\]*\?")


class Recent:
    """The resolutions that a cache keeps; keys say everything that decided one."""

    def __init__(self, cache: Cache | None = None, *, offline: bool = False) -> None:
        self._store = (cache or Cache(None)).store("resolved", "2", limit=_LIMIT, age=_OLD)
        self._within = _OLD if offline else YOUNG

    def get(self, key: str) -> bytes | None:
        """What was kept under `key`, where it is young enough."""
        return self._store.get(key, self._within)

    def put(self, key: str, body: bytes) -> None:
        """Keep `body`. What signs an address is not kept for others."""
        if not _SIGNED.search(body):
            self._store.put(key, body)
