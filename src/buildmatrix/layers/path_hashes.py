"""Sets of many paths in eight bytes each, where texts take a hundred: the names of whole trees."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterable

import msgspec

_SIZE = 8


class PathHashes(msgspec.Struct, frozen=True):
    """Paths by hashes of them, which are the same on every machine.

    What was put in is found. Of what was not, one in some 10^13 paths counts as if it had been: ask
    only where that costs nothing but work.
    """

    #: BLAKE2b of 8 bytes each (RFC 7693), sorted.
    data: bytes = b""

    @classmethod
    def of(cls, paths: Iterable[str]) -> PathHashes:
        """The set of these paths."""
        return cls(b"".join(sorted(set(map(_hash, paths)))))

    def __contains__(self, path: str) -> bool:
        wanted = _hash(path)
        at = bisect_left(range(len(self.data) // _SIZE), wanted, key=self._at)
        return self._at(at) == wanted

    def _at(self, number: int) -> bytes:
        return self.data[number * _SIZE : (number + 1) * _SIZE]


def _hash(path: str) -> bytes:
    return hashlib.blake2b(os.fsencode(path), digest_size=_SIZE).digest()
