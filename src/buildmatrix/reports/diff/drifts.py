"""Drift between the targets of one specification, as data."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "buildmatrix/drift/1"


@dataclass(frozen=True, slots=True)
class Pinned:
    """One version of a distribution, and the targets that have it."""

    version: str
    index: str | None
    targets: tuple[str, ...]
    #: From the requirement line down to it, on the first of the targets; by way of who asks for it
    #: there and not where the version is another, if somebody does.
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """A distribution that is not the same in all targets that have it."""

    name: str
    #: The one that most targets have comes first.
    pinned: tuple[Pinned, ...]
    #: Why that is meant; None where nothing says so.
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Drifts:
    """What differs between targets."""

    targets: tuple[str, ...]
    #: Drift first, then what has a reason; by name.
    items: tuple[Drift, ...]
    #: Distributions that have one version everywhere.
    same: int = 0
    #: Targets that nothing is known of, and why.
    unresolved: tuple[str, ...] = ()
    #: Locks that do not fit their inputs any more.
    stale: tuple[str, ...] = ()
