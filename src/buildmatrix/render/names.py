"""Names in the bake file. bake allows letters, digits, `_` and `-` in them."""

from __future__ import annotations


def bake_name(target: str) -> str:
    """The bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """The bake target that scans it."""
    return f"scan-{bake_name(target)}"
