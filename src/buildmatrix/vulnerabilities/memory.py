"""Answers of the last days, for runs without a network and for runs right after each other.

pip-audit's own cache cannot serve these: OSV is asked by POST, which no HTTP cache keeps, and what
PyPI answers may be kept for a quarter of an hour only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from buildmatrix.store.cache import Cache
from buildmatrix.threads import prepare_type
from buildmatrix.vulnerabilities.model import Advisory
from buildmatrix.vulnerabilities.pins import Pin

#: An answer so young is not asked for again; as long as PyPI lets its own answers be kept.
FRESH = timedelta(minutes=15)
#: An answer so old is no longer used.
STALE = timedelta(days=7)
#: Bytes of all answers together.
_LIMIT = 64_000_000
#: Changes with the layout of `Remembered`.
_VERSION = "2"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One answer, and when the service gave it."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    advisories: tuple[Advisory, ...] = ()
    #: Why the service knows nothing, where it does not know the version.
    unknown: str | None = None


_ANSWER = msgspec.msgpack.Decoder(prepare_type(Remembered))


class AdvisoryMemory:
    """The answers of one service that a cache keeps."""

    def __init__(self, cache: Cache | None, service: str, now: datetime) -> None:
        self._now = now
        self._service = service
        self._store = (cache or Cache(None)).store(
            "advisories", _VERSION, limit=_LIMIT, age=STALE.total_seconds()
        )

    def recall(self, pin: Pin, oldest: timedelta) -> Remembered | None:
        """The answer about a pin, unless it is older than `oldest`."""
        answer = self._store.load(self._key(pin), _ANSWER)
        # An answer from the future is from a clock that was wrong.
        if answer is None or not timedelta(0) <= self._now - answer.at <= oldest:
            return None
        return answer

    def keep(self, answers: Mapping[Pin, Remembered]) -> None:
        """Remember answers."""
        for pin, answer in answers.items():
            self._store.save(self._key(pin), answer)

    def _key(self, pin: Pin) -> str:
        return f"{self._service} {pin}"
