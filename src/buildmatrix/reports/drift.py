"""Drift between the targets of a matrix, as data and as sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, listing
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import Row, Section, filled, limit, sentences

# Drift as data


class Pinned(Struct, frozen=True):
    """One version of a distribution, and the targets that have it."""

    version: str
    index: str | None
    targets: tuple[str, ...]
    #: From the requirement line down to it, on the first of the targets; by way of who asks for it
    #: there and not where the version is another, if somebody does.
    chain: tuple[str, ...]


class Drift(Struct, frozen=True):
    """A distribution that is not the same in all targets that have it."""

    name: str
    #: The one that most targets have comes first.
    pinned: tuple[Pinned, ...]


class ExplainedDrift(Drift, frozen=True):
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


# Drift as sections


#: Versions, and targets of one version, that are shown without `--all`.
MOST, MOST_TARGETS = 80, 4


def sections(drifts: Drifts, *, every: bool) -> Sequence[Section]:
    """Distributions that differ without a reason, those with one, and what is not known."""
    most = None if every else MOST
    return filled(
        limit(
            Section(
                "drift",
                "Different without a reason",
                ("distribution", "version", "targets", "brought by"),
                tuple(
                    _row(drift, pinned, every, " -> ".join(pinned.chain))
                    for drift in drifts.drift
                    for pinned in drift.pinned
                ),
                subject=0,
            ),
            most,
        ),
        limit(
            Section(
                "explained",
                "Different for a reason",
                ("distribution", "version", "targets", "reason"),
                tuple(
                    _row(drift, pinned, every, drift.reason)
                    for drift in drifts.explained
                    for pinned in drift.pinned
                ),
                subject=0,
                is_folded=True,
            ),
            most,
        ),
        sentences("unresolved", "Not resolved, so nothing is known about these", drifts.unresolved),
        sentences("stale", "Locks that do not fit their inputs", drifts.stale),
    )


def _row(drift: Drift, pinned: Pinned, every: bool, text: str) -> Row:
    targets = listing(pinned.targets, len(pinned.targets) if every else MOST_TARGETS)
    return Row((drift.name, pinned.version, targets, text))


def summary(drifts: Drifts) -> str:
    """One sentence about the whole."""
    parts = [
        f"{count(len(drifts.drift), 'distribution')} without a reason",
        f"{len(drifts.explained)} with one",
        f"{drifts.same} the same",
    ]
    text = f"{count(len(drifts.targets), 'target')}: {', '.join(parts)}"
    left = f"; {count(len(drifts.unresolved), 'target')} not resolved" if drifts.unresolved else ""
    return text + left


def state_of(drifts: Drifts) -> str:
    """The state of the whole."""
    return "undecided" if drifts.drift or drifts.unresolved else "passed"
