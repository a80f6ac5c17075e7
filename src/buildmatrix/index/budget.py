"""How many bytes of which wheel may be read beyond its list of files.

The shares depend on sizes alone, never on what was read or remembered before: the same lock gives
the same report whether the cache is warm or cold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.index.amounts import FEW_PYTHON, HEAD, SMALL, SNIFF, masked, nested_ends, useful
from buildmatrix.index.model import Member
from buildmatrix.inventory.mattering import LEAST, may_be_container, may_matter

#: Of one source distribution, which is read whole or not at all; more with `--deep`.
USUAL_SOURCE = 32 << 20
LARGEST_SOURCE = 128 << 20
#: Of all wheels together, in parts of their bytes. The lists of files cost 0.1 to 0.2 % by
#: themselves, and both together are to stay below 1 %.
PART_OF_ALL = 138
#: A small lock gets this much, less the more there is to read: some tens of MB take seconds.
FLOOR = 64_000_000
FLOOR_SINKS = 75
#: Of one wheel, at first: in four of ten libraries device code shows within an eighth.
PART_OF_ONE = 5
#: Of one wheel in any case: many small binaries are only known when each was opened.
LEAST_OF_ONE = 10_000_000


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a look into one wheel can use, and that it may use at most."""

    bytes: int
    limit: int
    #: What everything that may matter takes, its beginnings once more.
    whole: int
    #: Bytes of containers: of these, a part says no more than their lists.
    packed: int = 0

    @property
    def is_packed(self) -> bool:
        """Return True if most of it is in containers."""
        return 2 * self.packed > self.whole

    @classmethod
    def of(cls, size: int, members: Iterable[Member]) -> Need:
        """What reading the beginnings of all binaries among `members`, and Python, takes."""
        members = tuple(members)
        binaries = python = whole = packed = 0
        for member in members:
            if member.path.endswith(".py"):
                python += member.compressed
            elif may_matter(member.path, member.size):
                small = member.compressed <= SMALL
                binaries += member.compressed if small else useful(member)
                whole += member.compressed if small else member.compressed + HEAD
                if may_be_container(member.path):
                    whole += max(nested_ends(member.compressed), default=0)
                    packed += member.compressed
        hidden = [member.compressed for member in masked(members)]
        if python > FEW_PYTHON:
            hidden += [
                SNIFF for member in members if member.path.endswith(".py") and member.size >= LEAST
            ]
        sniffed = sum(min(compressed, SNIFF) for compressed in hidden)
        run = everything = python if python <= FEW_PYTHON else 0
        if binaries < python:
            # Little else can be known of it; of many files an import runs less than half.
            run = max(min(python, FEW_PYTHON), python * 9 // 20)
            everything = python
        limit = min(size, max(size // PART_OF_ONE, LEAST_OF_ONE))
        whole += sniffed + sum(hidden) + everything
        return cls(binaries + sniffed + run, limit, whole, packed)

    @property
    def most(self) -> int:
        """What it gets where there is enough."""
        return min(self.bytes, self.limit)


def shares(
    groups: Sequence[Mapping[str, Need]], total: int, reserved: int = 0
) -> Mapping[str, int]:
    """Wheel -> bytes that may be read of it, for those that get any.

    Args:
        groups: the wheels to look into; the group that matters most comes first and gets what it
            can use before the next one does.
        total: bytes of all wheels.
        reserved: bytes that are for something else.

    Within a group, those that need little get what they can use, and the others share the rest.
    """
    available = most(total) - reserved
    result: dict[str, int] = {}
    for group in groups:
        names = [name for name in group if name not in result]
        names.sort(key=lambda name: (group[name].most, name))
        for number, name in enumerate(names):
            share = min(group[name].most, available // (len(names) - number))
            available -= share
            if share:
                result[name] = share
    return result


def leftover_shares(needed: Mapping[str, Need], total: int, spent: int) -> Mapping[str, int]:
    """Wheel -> bytes that may be read of it, where the first share was too little.

    What the shares left, `spent` being those, goes to those that it is enough for as a whole, the
    heaviest first, as most can hide there. What is left then goes to the heaviest of the others.
    """
    available = most(total) - spent
    result: dict[str, int] = {}
    heaviest = sorted(needed, key=lambda name: (-needed[name].whole, name))
    for name in heaviest:
        if needed[name].whole <= available:
            available -= needed[name].whole
            result[name] = needed[name].whole
    for name in heaviest:
        if name not in result and available > 0 and not needed[name].is_packed:
            result[name] = available
            break
    return result


def most(total: int) -> int:
    """Bytes that may be read beyond the lists of wheels that have `total` bytes together."""
    return max(total // PART_OF_ALL, FLOOR - total // FLOOR_SINKS)
