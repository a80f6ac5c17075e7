"""Entries and containers that all readers of device code return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One piece of device code in a file; the fields are those of `DeviceCode`."""

    format: str
    kind: str
    arch: str | None
    offset: int
    size: int
    compressed: bool = False
    note: str | None = None
    language: str | None = None


def newer_version(first: str | None, second: str | None) -> str | None:
    """Return the newer of two versions such as `8.7`; None if neither is known."""
    present = [version for version in (first, second) if version is not None]
    return max(present, key=lambda version: [int(n) for n in version.split(".")], default=None)


@dataclass(frozen=True, slots=True)
class CodeContainer:
    """A run of entries, and the file offset behind it, which is always past its start."""

    entries: tuple[CodeEntry, ...]
    end: int
