"""The ladder of `preflight`. Apart from the model, since options of commands name it."""

from __future__ import annotations

from typing import Literal, get_args

#: Each rung asks more of an image and its machine than the one before.
Rung = Literal[
    "static", "import", "device", "compute", "collective", "batch", "memory", "cold-start"
]
#: Rungs in the order in which they are climbed.
RUNGS: tuple[Rung, ...] = get_args(Rung)
