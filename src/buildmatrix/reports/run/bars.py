"""The bytes of each target, used and wasted, by vendor: as bars, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.phrases import size
from buildmatrix.reports.page.shapes import lengths
from buildmatrix.reports.page.vendors import vendor_class, vendor_name
from buildmatrix.rules.composition import Composition, VendorBytes
from buildmatrix.rules.model import TargetResult


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar, in percent of the longest bar."""

    style: str
    is_wasted: bool
    size: int
    x: float
    width: float
    #: `NVIDIA, wasted: 5.9 GB`
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One target."""

    segments: tuple[Segment, ...]
    size: int
    wasted: int
    #: Whether the wasted bytes are a lower bound.
    at_least: bool

    @property
    def text(self) -> str:
        """The whole bar in one sentence."""
        return "; ".join(segment.text for segment in self.segments)

    @property
    def percent(self) -> int:
        """Percentage of it that is wasted."""
        return round(100 * self.wasted / self.size) if self.size else 0


def bars(targets: Sequence[TargetResult]) -> Mapping[str, Bar]:
    """A bar for each target whose bytes are known, by its id."""
    shares = {target.id: vendor_bytes(target) for target in targets}
    most = max((sum(share.size for share in parts) for parts in shares.values()), default=0)
    return {
        target.id: _bar(shares[target.id], most, target) for target in targets if shares[target.id]
    }


def vendor_bytes(target: TargetResult) -> Sequence[VendorBytes]:
    """Return the bytes of each vendor in a target, unusable ones last.

    Of a report of earlier versions only the sums are known, and not whose they are.
    """
    if target.composition is not None:
        return by_vendor(target.composition)
    if target.audit is not None and target.audit.installed:
        return [VendorBytes("", target.audit.installed, target.audit.foreign_installed)]
    return [VendorBytes("", target.size)] if target.size else []


def by_vendor(composition: Composition) -> Sequence[VendorBytes]:
    """The sums by vendor, the largest first, and what belongs to none before all."""
    sizes: dict[str, list[int]] = {}
    for part in composition.distributions:
        for share in part.vendors:
            sums = sizes.setdefault(share.vendor, [0, 0])
            sums[0] += max(0, share.size)
            sums[1] += min(max(0, share.wasted), max(0, share.size))
    return sorted(
        (VendorBytes(vendor, total, wasted) for vendor, (total, wasted) in sizes.items() if total),
        key=lambda share: (share.vendor != "", -share.size, share.vendor),
    )


def _bar(shares: Sequence[VendorBytes], most: int, target: TargetResult) -> Bar:
    parts = [(share.vendor, share.size - share.wasted, False) for share in shares]
    parts += [(share.vendor, share.wasted, True) for share in shares]
    parts = [part for part in parts if part[1] > 0]
    places = lengths([bytes_ for _, bytes_, _ in parts], most)
    return Bar(
        tuple(
            Segment(
                vendor_class(vendor),
                is_wasted,
                bytes_,
                x,
                width,
                f"{vendor_name(vendor)}{', wasted' if is_wasted else ''}: {size(bytes_)}",
            )
            for (vendor, bytes_, is_wasted), (x, width) in zip(parts, places, strict=True)
        ),
        sum(share.size for share in shares),
        sum(share.wasted for share in shares),
        target.audit is not None and target.audit.foreign_at_least,
    )
