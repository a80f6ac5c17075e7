"""Which images carry most that they cannot use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buildmatrix.reports.fleet.model import FleetResult


def running(result: FleetResult) -> int:
    """Bytes of no use that its containers have pulled: as if each had pulled it once."""
    return result.containers * result.unusable_download


def by_bytes(results: Iterable[FleetResult]) -> Sequence[FleetResult]:
    """Those with bytes of no use, what a pull carries most of first."""
    wasteful = [result for result in results if result.unusable or result.unusable_download]
    return sorted(
        wasteful, key=lambda item: (-item.unusable_download, -item.unusable, item.title, item.key)
    )


def by_containers(results: Iterable[FleetResult]) -> Sequence[FleetResult]:
    """Those that containers run, what all of their containers carry most of first."""
    wasteful = [result for result in results if running(result)]
    return sorted(wasteful, key=lambda item: (-running(item), item.title, item.key))
