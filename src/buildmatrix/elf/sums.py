"""Adds up pieces of device code per format, kind and architecture."""

from __future__ import annotations

from dataclasses import replace

from buildmatrix.elf.entries import Entry
from buildmatrix.elf.model import DeviceCode

#: Different (format, kind, architecture); real files have up to a hundred.
MOST_SUMS = 2048


class Sums:
    """The sums of one file; what does not fit goes to `unread`."""

    def __init__(self, unread: list[str]) -> None:
        self._unread = unread
        self._sums: dict[tuple[str, str, str | None], DeviceCode] = {}

    def add(self, entry: Entry, section: str | None = None) -> None:
        """Counts one piece."""
        self.merge(
            DeviceCode(
                format=entry.format,
                kind=entry.kind,
                arch=entry.arch,
                count=1,
                size=entry.size,
                offset=entry.offset,
                section=section,
                note=entry.note,
                compressed=int(entry.compressed),
            )
        )

    def merge(self, code: DeviceCode) -> None:
        """Counts what another sum counted."""
        key = (code.format, code.kind, code.arch)
        known = self._sums.get(key)
        if known is not None:
            self._sums[key] = replace(
                known,
                count=known.count + code.count,
                size=known.size + code.size,
                compressed=known.compressed + code.compressed,
                note=known.note or code.note,
            )
        elif len(self._sums) < MOST_SUMS:
            self._sums[key] = code
        elif len(self._sums) == MOST_SUMS:
            self._unread.append(f"only the first {MOST_SUMS} kinds of device code were counted")
            self._sums[key] = code

    def found(self) -> tuple[DeviceCode, ...]:
        """The sums, in an order that depends on the bytes only."""
        return tuple(
            sorted(self._sums.values(), key=lambda s: (s.format, s.kind, s.arch or "", s.offset))
        )
