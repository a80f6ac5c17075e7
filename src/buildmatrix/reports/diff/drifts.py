"""Drift between the targets of one specification, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.reports.json_form import THIS_TOOL, Tool


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


@dataclass(frozen=True, slots=True)
class ExplainedDrift(Drift):
    """Drift that is meant."""

    #: Why it is.
    reason: str


@dataclass(frozen=True, slots=True)
class Drifts:
    """Differences between the images of targets."""

    schema: Literal["buildmatrix/drift/1"] = field(default="buildmatrix/drift/1", kw_only=True)
    tool: Tool = field(default=THIS_TOOL, kw_only=True)
    targets: tuple[str, ...]
    #: Distributions that have one version everywhere.
    same: int = 0
    #: By name.
    drift: tuple[Drift, ...] = ()
    explained: tuple[ExplainedDrift, ...] = ()
    #: Targets that nothing is known of, and why.
    unresolved: tuple[str, ...] = ()
    #: Locks that do not fit their inputs any more.
    stale: tuple[str, ...] = ()
