"""What the readers of the device-code formats have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One piece of device code in a file; the fields mean what they mean in `DeviceCode`."""

    format: str
    kind: str
    arch: str | None
    offset: int
    size: int
    compressed: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CodeContainer:
    """A run of entries, and the file offset behind it, which lies behind its start."""

    entries: tuple[CodeEntry, ...]
    end: int
