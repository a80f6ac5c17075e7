"""What is known of a wheel that was read where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.inventory.model import Inventory
from buildmatrix.trees.wheel import Member

__all__ = ["DEPTHS", "Depth", "Member", "WheelFacts"]

#: How much of a wheel is read.
#:
#: - `listing`: its central directory and its metadata folder. Every file that could matter is in
#:   `Inventory.closed`.
#: - `heads`: also the beginning of every file that may be a binary (small ones whole), its Python
#:   files where they are few, and, as far as bytes may be spent, large binaries up to the first
#:   device code. `Elf.read` says how far.
#: - `whole`: everything, once.
Depth = Literal["listing", "heads", "whole"]
DEPTHS: tuple[Depth, ...] = ("listing", "heads", "whole")


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """The facts of one wheel, as deep as it was read."""

    filename: str
    #: Hex; None where nobody said it: the facts are then not cached.
    sha256: str | None
    #: Bytes of the wheel.
    size: int
    depth: Depth
    inventory: Inventory
    #: All files of the wheel, sorted by path.
    members: tuple[Member, ...]
    #: Bytes that came over the network for this answer; 0 from the cache and for local files.
    bytes_read: int = 0
