"""Rungs of `preflight`. Apart from the model, as options of commands name them."""

from __future__ import annotations

from typing import Literal, get_args

#: Each rung asks more of an image and its machine than the one before.
Rung = Literal[
    "static", "import", "device", "compute", "collective", "batch", "memory", "cold-start"
]
#: Rungs in the order in which they are climbed.
RUNGS: tuple[Rung, ...] = get_args(Rung)


def has_to_run(rung: Rung, level: Rung) -> bool:
    """Return whether a climb that was asked to reach `level` lacks something without `rung`.

    That is `level` itself, and `device`, by which the rungs above it are about the backend. Those
    between may have nothing to run: no `[[smoke]]` command, or one device alone.
    """
    return rung == level or (rung == "device" and RUNGS.index(rung) < RUNGS.index(level))
