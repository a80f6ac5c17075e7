"""The model: two dense layers, trained on the UCI digits set (see tools/train.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

PIXELS = 64
DIGITS = 10


class Backend(Protocol):
    """Computes `relu(x @ w + b)`, or the sum alone, on one kind of device."""

    def device(self) -> str:
        """The device that the work runs on."""

    def dense(self, x: Array, weights: Array, bias: Array, *, relu: bool) -> Array:
        """One layer over a batch: (n, k), (k, m), (m,) → (n, m)."""


class Classifier:
    """Eight by eight grey values in, a digit out."""

    def __init__(self, backend: Backend, weights: Path | None = None) -> None:
        path = weights or Path(__file__).with_name("weights.json")
        layers: list[dict[str, Any]] = json.loads(path.read_text())["layers"]
        self.backend = backend
        self.layers = [
            (np.asarray(layer["weights"], np.float32), np.asarray(layer["bias"], np.float32))
            for layer in layers
        ]

    def classify(self, pixels: Array) -> list[int]:
        """The digits of a batch of pictures, (n, 64) with values from 0 to 16."""
        x = np.ascontiguousarray(pixels, np.float32) / np.float32(16)
        last = len(self.layers) - 1
        for depth, (weights, bias) in enumerate(self.layers):
            x = self.backend.dense(x, weights, bias, relu=depth < last)
        return [int(digit) for digit in x.argmax(axis=1)]
