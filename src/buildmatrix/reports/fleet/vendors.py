"""Which vendors' bytes are in the images of a fleet, and in how many they cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.model import FleetResult


@dataclass(frozen=True, slots=True)
class VendorTotals:
    """Installed bytes of one vendor, over all images."""

    #: Empty for what belongs to none.
    vendor: str
    #: Images that have some of it, and those that cannot use some of it.
    images: int
    unusable_images: int
    size: int
    unusable: int


def vendor_totals(results: Iterable[FleetResult]) -> Sequence[VendorTotals]:
    """Each vendor, of whose bytes most cannot be used first."""
    rows: dict[str, VendorTotals] = {}
    for result in results:
        for held in result.vendors:
            row = rows.get(held.vendor, VendorTotals(held.vendor, 0, 0, 0, 0))
            rows[held.vendor] = VendorTotals(
                held.vendor,
                row.images + 1,
                row.unusable_images + (held.wasted > 0),
                row.size + held.size,
                row.unusable + held.wasted,
            )
    return sorted(rows.values(), key=lambda row: (-row.unusable, -row.size, row.vendor))
