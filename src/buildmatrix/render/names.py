"""Names in the bake file. bake allows letters, digits, `_` and `-` in them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def bake_name(target: str) -> str:
    """The bake target that builds the image of `target`: `cuda12_8-py312-server`."""
    return target.replace(".", "_")


def scan_name(target: str) -> str:
    """The bake target that scans it."""
    return f"scan-{bake_name(target)}"


def staged_name(target: str, root: Path) -> str:
    """The name that an image has on one machine until its gates have passed.

    The specification's folder `root` is part of it: two projects may have targets of one name.
    """
    project = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    # A tag holds 128 characters (distribution/reference, `regexp.go`).
    return f"buildmatrix-staged:{project}-{target}"[: len("buildmatrix-staged:") + 128]


def site_folders(python: str) -> tuple[str, str]:
    """Return the folders of an image that a wheel's files and its `data` are installed into.

    Source: `install` in templates/_macros.j2.
    """
    return f"opt/venv/lib/python{python}/site-packages", "opt/venv"
