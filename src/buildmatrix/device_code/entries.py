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
    language: str | None = None


def newer(first: str | None, second: str | None) -> str | None:
    """The newer of two versions such as `8.7`; None where neither is known."""
    present = [version for version in (first, second) if version is not None]
    return max(present, key=lambda version: [int(n) for n in version.split(".")], default=None)


@dataclass(frozen=True, slots=True)
class CodeContainer:
    """A run of entries, and the file offset behind it, which lies behind its start."""

    entries: tuple[CodeEntry, ...]
    end: int
