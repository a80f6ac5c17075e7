"""Names in the bake file. bake allows letters, digits, `_` and `-` in them."""

from __future__ import annotations


def bake_name(target: str) -> str:
    """The bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """The bake target that scans it."""
    return f"scan-{bake_name(target)}"


def site_folders(python: str) -> tuple[str, str]:
    """Where the files of a wheel land in an image, and where its `data` does.

    Source: `install` in templates/_macros.j2.
    """
    return f"opt/venv/lib/python{python}/site-packages", "opt/venv"
