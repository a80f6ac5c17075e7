"""Bytes of a fleet that cannot be used: as a registry keeps them, and as pulls transfer them.

A layer that many images have may be of no use in one and be what another is for. So of each
distinct layer the *least* counts that any judged image with it cannot use: what all of them carry
for nothing. What some of them cannot use, and others can, is said apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from buildmatrix.reports.fleet.images import Image
from buildmatrix.reports.fleet.model import FleetResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTotals:
    """All distinct layers, as a registry keeps each once: bytes are those of a pull."""

    layers: int = 0
    size: int = 0
    #: Of no use to any image that has them.
    unusable: int = 0
    #: Of these, in layers that an undecided image has, too: it might use them.
    unusable_open: int = 0
    #: Of no use to some images, and used by others: wasted by how images are put together.
    unusable_in_some: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullTotals:
    """All images, each pulled once; and once for each container that is known to run it."""

    images: int = 0
    size: int = 0
    #: At least: of undecided images only what was read counts.
    unusable: int = 0
    containers: int = 0
    running: int = 0
    unusable_running: int = 0


@dataclass(slots=True)
class _Layer:
    size: int = 0
    least: int | None = None
    most: int = 0
    is_open: bool = False


def layer_totals(results: Iterable[FleetResult]) -> LayerTotals:
    """Add up the distinct layers of results."""
    layers: dict[str, _Layer] = {}
    for result in results:
        is_open = result.state == "undecided"
        # An image may have a layer twice: what lies below is hidden there, and counts above.
        unusable: dict[str, int] = {}
        for layer in result.layers:
            held = layers.get(layer.digest)
            if held is None:
                held = layers[layer.digest] = _Layer()
            held.size = max(held.size, layer.size)
            held.is_open |= is_open
            sum_ = unusable.get(layer.digest, 0) + layer.unusable_size
            unusable[layer.digest] = min(sum_, layer.size)
        for digest, size in unusable.items() if not is_open else ():
            held = layers[digest]
            held.least = size if held.least is None else min(held.least, size)
            held.most = max(held.most, size)
    every = layers.values()
    return LayerTotals(
        layers=len(layers),
        size=sum(layer.size for layer in every),
        unusable=sum(layer.least or 0 for layer in every),
        unusable_open=sum(layer.least or 0 for layer in every if layer.is_open),
        unusable_in_some=sum(layer.most - (layer.least or 0) for layer in every),
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
