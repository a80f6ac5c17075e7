"""Totals of a fleet: by image, layer, vendor and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from buildmatrix.judge.composition import VendorBytes
from buildmatrix.reports.fleet.assembly import bytes_more
from buildmatrix.reports.fleet.model import FleetChange, FleetDrift, FleetResult

# Images: one that is judged for two backends is pulled once


class Image(Struct, frozen=True):
    """An image, or a lock, with what is said of it for each backend."""

    results: tuple[FleetResult, ...]

    @property
    def owner(self) -> str:
        """Its owner; empty without one."""
        return max(result.owner for result in self.results)

    @property
    def download(self) -> int:
        """Bytes of a pull."""
        return max(result.download for result in self.results)

    @property
    def unusable(self) -> int:
        """Bytes of a pull that none of its backends can use."""
        return min(result.unusable_download for result in self.results)

    @property
    def containers(self) -> int:
        """Containers that run it."""
        return max(result.containers for result in self.results)

    @property
    def is_failed(self) -> bool:
        """True if it failed for one of its backends."""
        return any(result.state == "failed" for result in self.results)

    @property
    def is_undecided(self) -> bool:
        """True if it is undecided for one of its backends, and failed for none."""
        return not self.is_failed and any(result.state == "undecided" for result in self.results)


def images(results: Iterable[FleetResult]) -> Sequence[Image]:
    """The images that results are about, in their order."""
    grouped: dict[tuple[str, ...], list[FleetResult]] = {}
    for result in results:
        grouped.setdefault((result.kind, *result.key[:3]), []).append(result)
    return [Image(tuple(group)) for group in grouped.values()]


# Unusable bytes, as stored by a registry and as transferred by pulls.
#
# A layer of many images may be unused in one and needed by another. So each distinct layer counts
# with the *least* unusable bytes in any judged image: what all of them carry for nothing. Bytes
# that only some images cannot use are counted separately.


class LayerTotals(Struct, frozen=True, kw_only=True):
    """All distinct layers, as a registry keeps each once: bytes are those of a pull."""

    layers: int = 0
    size: int = 0
    #: Unused in every image that has them.
    unusable: int = 0
    #: Part of these in layers of an undecided image, which might use them.
    unusable_open: int = 0
    #: Unused in some images and used in others: wasted by how images are put together.
    unusable_in_some: int = 0


class PullTotals(Struct, frozen=True, kw_only=True):
    """All images, each pulled once; and once for each container that is known to run it."""

    images: int = 0
    size: int = 0
    #: At least: of undecided images only what was read counts.
    unusable: int = 0
    containers: int = 0
    running: int = 0
    unusable_running: int = 0


def layer_totals(results: Iterable[FleetResult]) -> LayerTotals:
    """Add up the distinct layers of results."""
    sizes: dict[str, int] = {}
    unusable: dict[str, list[int]] = {}
    undecided: set[str] = set()
    for result in results:
        # An image may have a layer twice: what lies below is hidden there, and counts above.
        own: dict[str, int] = {}
        for layer in result.layers:
            sizes[layer.digest] = max(sizes.get(layer.digest, 0), layer.size)
            sum_ = own.get(layer.digest, 0) + layer.unusable_size
            own[layer.digest] = min(sum_, layer.size)
        if result.state == "undecided":
            undecided.update(own)
            continue
        for digest, size in own.items():
            unusable.setdefault(digest, []).append(size)
    least = {digest: min(held) for digest, held in unusable.items()}
    return LayerTotals(
        layers=len(sizes),
        size=sum(sizes.values()),
        unusable=sum(least.values()),
        unusable_open=sum(least.get(digest, 0) for digest in undecided),
        unusable_in_some=sum(max(held) - min(held) for held in unusable.values()),
    )


def pull_totals(images: Iterable[Image]) -> PullTotals:
    """Add up the pulls of images."""
    every = tuple(images)
    return PullTotals(
        images=len(every),
        size=sum(image.download for image in every),
        unusable=sum(image.unusable for image in every),
        containers=sum(image.containers for image in every),
        running=sum(image.containers * image.download for image in every),
        unusable_running=sum(image.containers * image.unusable for image in every),
    )


# Vendors


class VendorTotals(Struct, frozen=True):
    """Installed bytes of one vendor, over all images."""

    #: Empty for what belongs to none.
    vendor: str
    #: Images that have some of it, and those that cannot use some of it.
    images: int
    unusable_images: int
    size: int
    unusable: int


def vendor_totals(results: Iterable[FleetResult]) -> Sequence[VendorTotals]:
    """Sort vendors by unusable bytes, descending."""
    by_vendor: dict[str, list[VendorBytes]] = {}
    for result in results:
        for held in result.vendors:
            by_vendor.setdefault(held.vendor, []).append(held)
    rows = (
        VendorTotals(
            vendor,
            len(every),
            sum(held.wasted > 0 for held in every),
            sum(held.size for held in every),
            sum(held.wasted for held in every),
        )
        for vendor, every in by_vendor.items()
    )
    return sorted(rows, key=lambda row: (-row.unusable, -row.size, row.vendor))


# Images with the most unusable bytes


def running(result: FleetResult) -> int:
    """Unused bytes that its containers have pulled: as if each had pulled it once."""
    return result.containers * result.unusable_download


def sort_by_bytes(results: Iterable[FleetResult]) -> Sequence[FleetResult]:
    """Sort results with unused bytes by the unused bytes of a pull, descending."""
    wasteful = [result for result in results if result.unusable or result.unusable_download]
    return sorted(
        wasteful, key=lambda item: (-item.unusable_download, -item.unusable, item.title, item.key)
    )


def sort_by_containers(results: Iterable[FleetResult]) -> Sequence[FleetResult]:
    """Sort running results by the unused bytes of all their containers, descending."""
    wasteful = [result for result in results if running(result)]
    return sorted(wasteful, key=lambda item: (-running(item), item.title, item.key))


# Owners


class OwnerTotals(Struct, frozen=True):
    """The images of one owner."""

    #: As a label of the images, or the place that names them, says it; empty without an owner.
    owner: str
    pulls: PullTotals
    failed: int
    undecided: int


def owner_totals(images: Iterable[Image]) -> Sequence[OwnerTotals]:
    """Each owner, with the most unused bytes in pulls first."""
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


class OwnerDrift(Struct, frozen=True):
    """Changes for one owner since an earlier report."""

    owner: str
    new: int
    gone: int
    worse: int
    better: int
    #: Unused bytes in pulls of all images; negative for less.
    more: int


def owner_drift(drift: FleetDrift) -> Sequence[OwnerDrift]:
    """Return owners with changes, by growth of their pulls, descending."""
    by_owner: dict[str, list[FleetChange]] = {}
    for change in drift.changes:
        by_owner.setdefault(change.owner, []).append(change)
    rows = []
    for owner, of_owner in by_owner.items():
        kinds = Counter(change.change for change in of_owner)
        numbers = kinds["new"], kinds["gone"], kinds["worse"], kinds["better"]
        rows.append(OwnerDrift(owner, *numbers, sum(map(bytes_more, of_owner))))
    return sorted(rows, key=lambda row: (-row.more, -row.worse, row.owner))
