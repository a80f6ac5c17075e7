"""Answers of the last days, for runs without a network and for runs right after each other.

pip-audit's own cache cannot serve these: OSV is asked by POST, which no HTTP cache keeps, and what
PyPI answers may be kept for a quarter of an hour only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from buildmatrix.inventory.writing import write_atomically
from buildmatrix.vulnerabilities.model import Advisory
from buildmatrix.vulnerabilities.pins import Pin

#: An answer so young is not asked for again; as long as PyPI lets its own answers be kept.
FRESH = timedelta(minutes=15)
#: An answer so old says nothing about today any more.
STALE = timedelta(days=7)
_LARGEST = 64_000_000
_SCHEMA = "buildmatrix/advisories/1"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One answer, and when the service gave it."""

    at: datetime
    advisories: tuple[Advisory, ...] = ()
    #: Why the service knows nothing, where it does not know the version.
    unknown: str | None = None


class _File(msgspec.Struct):
    schema: str
    answers: dict[str, Remembered]


class Memory:
    """The remembered answers of one service; None for a folder remembers nothing."""

    def __init__(self, folder: Path | None, service: str, now: datetime) -> None:
        self._now = now
        self._path = None
        if folder is not None:
            self._path = folder / f"{hashlib.sha256(service.encode()).hexdigest()[:16]}.json"
        self._answers = self._read()

    def recall(self, pin: Pin, oldest: timedelta) -> Remembered | None:
        """The answer about a pin, unless it is older than `oldest`."""
        known = self._answers.get(str(pin))
        return known if known is not None and self._is_within(known, oldest) else None

    def keep(self, said: Mapping[Pin, Remembered]) -> None:
        """Remember answers. A folder that cannot be written remembers nothing."""
        if self._path is None or not said:
            return
        # Another run may have written meanwhile. Where two write at once, answers of one are lost.
        answers = {name: one for name, one in self._read().items() if self._is_within(one, STALE)}
        answers |= {str(pin): one for pin, one in said.items()}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(_File(_SCHEMA, answers)))

    def _is_within(self, one: Remembered, oldest: timedelta) -> bool:
        # An answer from the future is from a clock that was wrong.
        return timedelta(0) <= self._now - one.at <= oldest

    def _read(self) -> dict[str, Remembered]:
        if self._path is None:
            return {}
        try:
            if self._path.stat().st_size > _LARGEST:
                return {}
            file = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        if file.schema != _SCHEMA or any(one.at.tzinfo is None for one in file.answers.values()):
            return {}
        return file.answers
