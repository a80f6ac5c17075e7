"""Results by image: one that is judged for two backends is pulled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.model import FleetResult


@dataclass(frozen=True, slots=True)
class Image:
    """An image, or a lock, with what is said of it for each backend."""

    results: tuple[FleetResult, ...]

    @property
    def owner(self) -> str:
        """Whom it belongs to; empty where nobody is named."""
        return max(result.owner for result in self.results)

    @property
    def download(self) -> int:
        """Bytes of a pull."""
        return max(result.download for result in self.results)

    @property
    def unusable(self) -> int:
        """Bytes of a pull that are of no use on any of its backends."""
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
