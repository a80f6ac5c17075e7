"""Sums of device code per format, kind and architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace

from buildmatrix.device_code.entries import CodeEntry, newer_version
from buildmatrix.device_code.model import DeviceCode

#: Distinct (format, kind, architecture) per file; real files have up to a hundred.
MOST_SUMS = 2048


class Sums:
    """Sums of one file; overflow is reported in `unread`."""

    def __init__(self, unread: list[str]) -> None:
        self._unread = unread
        self._sums: dict[tuple[str, str, str | None], _Sum] = {}

    def add(self, entry: CodeEntry, section: str | None = None) -> None:
        """Count one entry."""
        present = self._sums.get((entry.format, entry.kind, entry.arch))
        if present is not None and entry.offset >= present.first.offset:
            present.count += 1
            present.size += entry.size
            present.compressed += entry.compressed
            present.note = present.note or entry.note
            present.language = newer_version(present.language, entry.language)
            return
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
                language=entry.language,
            )
        )

    def merge(self, code: DeviceCode) -> None:
        """Add the counts of another sum."""
        key = (code.format, code.kind, code.arch)
        present = self._sums.get(key)
        if present is not None:
            present.count += code.count
            present.size += code.size
            present.compressed += code.compressed
            present.note = present.note or code.note
            present.language = newer_version(present.language, code.language)
            if code.offset < present.first.offset:
                present.first = code
        elif len(self._sums) <= MOST_SUMS:
            if len(self._sums) == MOST_SUMS:
                self._unread.append(f"only the first {MOST_SUMS} kinds of device code were counted")
            self._sums[key] = _Sum(
                code, code.count, code.size, code.compressed, code.note, code.language
            )

    def device_code(self) -> tuple[DeviceCode, ...]:
        """Return the sums, in an order that depends only on the bytes."""
        sums = (
            replace(
                s.first,
                count=s.count,
                size=s.size,
                compressed=s.compressed,
                note=s.note,
                language=s.language,
            )
            for s in self._sums.values()
        )
        return tuple(sorted(sums, key=lambda s: (s.format, s.kind, s.arch or "", s.offset)))


@dataclass(slots=True)
class _Sum:
    """Running counts, with the entry that comes first in the file."""

    first: DeviceCode
    count: int
    size: int
    compressed: int
    note: str | None
    language: str | None
