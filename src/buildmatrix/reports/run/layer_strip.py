"""The layers of an image as one strip: how large each is, and what of it is wasted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from buildmatrix.phrases import size
from buildmatrix.reports.page.shapes import lengths
from buildmatrix.rules.composition import LayerBytes


@dataclass(frozen=True, slots=True)
class LayerPiece:
    """Bytes of one layer that have one fate."""

    #: A class of the style sheet: what is used, wasted, or deleted by a later layer.
    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class LayerStrip:
    """The layers of targets that have the same ones, the lowest first."""

    targets: tuple[str, ...]
    layers: tuple[LayerBytes, ...]
    #: For each layer.
    pieces: tuple[tuple[LayerPiece, ...], ...]
    texts: tuple[str, ...]
    size: int
    wasted: int


def strip(targets: Sequence[str], layers: Sequence[LayerBytes]) -> LayerStrip:
    """The picture of the layers of one image."""
    parts = [_parts(layer) for layer in layers]
    whole = sum(bytes_ for part in parts for _, bytes_ in part)
    places = iter(lengths([bytes_ for part in parts for _, bytes_ in part], whole))
    return LayerStrip(
        tuple(targets),
        tuple(layers),
        tuple(tuple(LayerPiece(kind, *next(places)) for kind, _ in part) for part in parts),
        tuple(
            f"layer {number}: "
            + ", ".join(f"{size(bytes_)} {_WORDS[kind]}" for kind, bytes_ in part if bytes_)
            for number, part in enumerate(parts, 1)
        ),
        whole,
        sum(bytes_ for part in parts for kind, bytes_ in part if kind != "used"),
    )


_WORDS = {"used": "used", "lost": "wasted", "hidden": "deleted or replaced by a later layer"}


def _parts(layer: LayerBytes) -> list[tuple[str, int]]:
    whole = max(0, layer.size)
    hidden = min(max(0, layer.hidden), whole)
    wasted = min(max(0, layer.wasted), whole - hidden)
    return [("used", whole - hidden - wasted), ("lost", wasted), ("hidden", hidden)]
