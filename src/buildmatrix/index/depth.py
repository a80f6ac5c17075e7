"""Reads a wheel by parts, as deep as is asked: `listing` and `heads` of `index.model.Depth`.

What is read depends on the wheel's directory and on the bytes that may be spent, never on time or
on what was cached: the same question gets the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.index.ends import archives, ends, links, suspects
from buildmatrix.index.heads import disguised, heads
from buildmatrix.index.members import HeldTree
from buildmatrix.index.model import Depth, Member
from buildmatrix.index.parts import BATCH, Ranged, WheelParts
from buildmatrix.index.python import python
from buildmatrix.inventory.model import Inventory
from buildmatrix.inventory.shallow import collect_shallow
from buildmatrix.trees.wheel import WheelTree

#: A small wheel is brought as a whole where this part of it may be read: that is one request.
MOST_OF_IT = 3 / 4


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a wheel."""

    inventory: Inventory
    members: tuple[Member, ...]
    #: Whether more would have been read, had more bytes been allowed.
    limited: bool = False


def read_parts(source: Ranged, depth: Depth, most: int | None = None) -> Reading:
    """The facts of a wheel, with `most` bytes spent on more than its listing.

    Raises `Unreadable` when it is no ZIP archive, and what `source` raises.
    """
    with WheelTree(source) as tree:
        parts = WheelParts(source, tree, most)
        parts.listing()
        if depth != "listing":
            if source.size <= BATCH and (most is None or most >= source.size * MOST_OF_IT):
                source.load([(0, source.size)])
            heads(parts)
            ends(parts)
            links(parts)
            python(parts)
            disguised(parts)
            suspects(parts)
            archives(parts)
        held = HeldTree(tree.walk(), parts.held)
        inventory = collect_shallow(held, parts.facts, parts.opened, parts.unmasked, parts.lazy)
        return Reading(inventory, tree.members, parts.limited)
