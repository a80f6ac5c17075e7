"""Answers of an advisory service about the distributions of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct, field

#: Name (PEP 503, normalized) and version as a lock or an image has them.
Key: TypeAlias = "tuple[str, str]"

#: Why there is no answer: because of the `package` (unknown there, no version that can be asked),
#: or because of the `service` (not reached, broken, not asked).
Cause = Literal["package", "service"]


class Advisory(Struct, frozen=True):
    """One known vulnerability."""

    #: The service's own name for it: `PYSEC-2024-60`, `GHSA-h5c8-rqwp-cp95`.
    id: str
    #: Its other names, sorted.
    aliases: tuple[str, ...] = ()
    #: Versions that no longer have it, oldest first; empty where there is none.
    fixed: tuple[str, ...] = ()
    #: One line, cut at `pip_audit.LONGEST` characters.
    description: str = ""

    @property
    def names(self) -> frozenset[str]:
        """All names of it."""
        return frozenset((self.id, *self.aliases))

    @property
    def identity(self) -> str:
        """The name that changes least: its CVE number, else the first of its names."""
        return min(self.names, key=lambda name: (not name.startswith("CVE-"), name))


class PinAnswer(Struct, frozen=True):
    """Advisories against one version; an empty answer means none is known."""

    advisories: tuple[Advisory, ...]
    #: The version that was asked about. Not the installed one where that is a local version.
    version: str
    #: When the service said so, UTC.
    at: datetime


class Unchecked(Struct, frozen=True):
    """Reason why a version was not checked."""

    reason: str
    cause: Cause


class Advisories(Struct, frozen=True):
    """Everything that was asked in a run: each key is in `answers` or in `unchecked`."""

    #: How messages name the service: `PyPI`, `OSV`, `OSV at http://127.0.0.1:8000/v1/query`.
    service: str
    answers: Mapping[Key, PinAnswer] = field(default_factory=dict)
    unchecked: Mapping[Key, Unchecked] = field(default_factory=dict)
