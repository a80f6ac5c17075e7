"""Owners of a fleet's images, and their unusable bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.drift import bytes_more
from buildmatrix.reports.fleet.images import Image
from buildmatrix.reports.fleet.model import FleetChange, FleetDrift
from buildmatrix.reports.fleet.unusable import PullTotals, pull_totals


@dataclass(frozen=True, slots=True)
class OwnerTotals:
    """The images of one owner."""

    #: As a label of the images, or the place that names them, says it; empty for nobody.
    owner: str
    pulls: PullTotals
    failed: int
    undecided: int


def owner_totals(images: Iterable[Image]) -> Sequence[OwnerTotals]:
    """Each owner, whose pulls carry most of no use first."""
    by_owner: dict[str, list[Image]] = {}
    for image in images:
        by_owner.setdefault(image.owner, []).append(image)
    totals = (
        OwnerTotals(
            owner,
            pull_totals(of_owner),
            sum(image.is_failed for image in of_owner),
            sum(image.is_undecided for image in of_owner),
        )
        for owner, of_owner in by_owner.items()
    )
    return sorted(totals, key=lambda item: (-item.pulls.unusable, -item.failed, item.owner))


@dataclass(frozen=True, slots=True)
class OwnerDrift:
    """Changes for one owner since an earlier report."""

    owner: str
    new: int
    gone: int
    worse: int
    better: int
    #: Bytes of no use in pulls of all images; negative for less.
    more: int


def owner_drift(drift: FleetDrift) -> Sequence[OwnerDrift]:
    """Each owner for whom something changed, whose pulls grew most first."""
    by_owner: dict[str, list[FleetChange]] = {}
    for change in drift.changes:
        by_owner.setdefault(change.owner, []).append(change)
    rows = []
    for owner, of_owner in by_owner.items():
        kinds = [change.change for change in of_owner]
        rows.append(
            OwnerDrift(
                owner,
                kinds.count("new"),
                kinds.count("gone"),
                kinds.count("worse"),
                kinds.count("better"),
                sum(map(bytes_more, of_owner)),
            )
        )
    return sorted(rows, key=lambda row: (-row.more, -row.worse, row.owner))
