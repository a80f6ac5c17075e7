"""Byte budgets: the bytes of each wheel that may be read beyond its list of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.facts.inventory.filters import LEAST, may_be_container, may_hide, may_matter
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.facts.trees.zip_archive import LARGEST_HELD

# Amounts read at `heads`; budgets are computed from the same numbers


#: Parts that are this close make one request: a request costs as much as these bytes.
GAP = 64 << 10
#: Compressed bytes of a member that count as its beginning. In half of the large libraries, it has
#: the names of the linked libraries.
HEAD = 64 << 10
#: Compressed bytes to read of a member with a harmless name, and the number of small members to
#: read so, the largest first: their first bytes show what they are.
SNIFF = 1 << 10
MOST_SNIFFED = 32
#: A member with fewer compressed bytes is read whole: its facts are then complete.
SMALL = 256 << 10
#: A larger one up to this size is read whole if it loads libraries by name, which may be anywhere
#: in its data.
NEARLY_SMALL = 512 << 10
#: Compressed bytes of all Python files together that are always read. Parts of them do not show
#: what an import reaches.
FEW_PYTHON = 1 << 20
#: A member is streamed up to this part of it while others wait and bytes are scarce: if a file is
#: mostly device code, it usually begins before.
FIRST_PART = 4
#: Compressed bytes read as the end of a member whose beginning does not show what its data is: at
#: first, and if that lacks the names of all sections. Deflate begins a block every 10 to 40 KiB.
ENDS = (64 << 10, 256 << 10)
#: Binaries of one wheel whose ends are read; those with the most data first.
MOST_ENDS = 16
#: Compressed bytes read in the middle of a member, to find device code there, and the number of
#: such attempts. One program for several architectures takes some 500 KB.
MIDDLE = 512 << 10
MIDDLES = 8

#: Bytes of the large containers of one wheel that are read whole beyond its share: the jar of ray,
#: whose list of files does not decide, has 32 MB.
CONTAINERS_WHOLE = 48 << 20
#: Compressed bytes read as the end of a deflated archive, one after the other until they include
#: its list of files. That of h2o's jar, with 79,000 files, takes 2 MB.
NESTED_ENDS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
#: Compressed bytes read as the end of a library, until they include its dynamic section. Data
#: follows that: 1.3 MB in libnvJitLink.so.12, which take 600 KB.
DYNAMIC_ENDS = (128 << 10, 512 << 10, 3 << 19)


def is_small(member: Member) -> bool:
    """Return True if a member is read whole when the budget allows."""
    return member.compressed <= SMALL and member.size <= LARGEST_HELD


def tables_cost(member: Member) -> int:
    """Return the maximum bytes of a member's tables, without its symbols."""
    return (
        member.compressed if is_small(member) else min(member.compressed, HEAD + DYNAMIC_ENDS[-1])
    )


def nested_ends(compressed: int) -> tuple[int, ...]:
    """Return the lengths to try for an archive: all of it costs little more than half of it."""
    return tuple(length for length in NESTED_ENDS if length <= compressed // FIRST_PART)


def disguised_members(members: Iterable[Member]) -> Iterator[Member]:
    """Yield files with harmless names whose first bytes are read anyway, the largest first.

    All large ones, and some of the small: those decide next to nothing, and there may be thousands.
    """
    candidates = [member for member in members if may_hide(member.path, member.size)]
    candidates.sort(key=lambda member: (-member.compressed, member.path))
    for number, member in enumerate(candidates):
        if member.size >= LEAST or number < MOST_SNIFFED:
            yield member


def useful(member: Member) -> int:
    """Return the bytes of a member that is not small that a first look can use."""
    if member.compressed <= NEARLY_SMALL:
        return member.compressed + HEAD
    return max(HEAD, member.compressed // FIRST_PART)


# Shares. They depend on sizes alone, never on what was read or cached before: the same lock gives
# the same report whether the cache is warm or cold.


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


#: A wheel of up to this size is read whole: its parts cost as much time, and show less.
SMALL_WHEEL = 5 << 20


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that reading one wheel can use, and its limit."""

    bytes: int
    limit: int
    #: Bytes of everything that may matter, beginnings counted twice.
    whole: int
    #: Bytes of containers: a part of one shows no more than its list.
    packed: int = 0

    @property
    def is_packed(self) -> bool:
        """Return True if most of it is in containers."""
        return 2 * self.packed > self.whole

    @classmethod
    def of(cls, size: int, members: Iterable[Member]) -> Need:
        """Compute the need for the beginnings of all binaries among `members`, and Python."""
        if size <= SMALL_WHEEL:
            return cls(size, size, size)
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
        hidden = [member.compressed for member in disguised_members(members)]
        if python > FEW_PYTHON:
            hidden += [
                SNIFF for member in members if member.path.endswith(".py") and member.size >= LEAST
            ]
        sniffed = sum(min(compressed, SNIFF) for compressed in hidden)
        run = everything = python if python <= FEW_PYTHON else 0
        if binaries < python:
            # Little else can be learned from it; of many files an import runs less than half.
            run = max(min(python, FEW_PYTHON), python * 9 // 20)
            everything = python
        limit = min(size, max(size // PART_OF_ONE, LEAST_OF_ONE))
        whole += sniffed + sum(hidden) + everything
        return cls(binaries + sniffed + run, limit, whole, packed)

    @property
    def most(self) -> int:
        """The share if there is enough for all."""
        return min(self.bytes, self.limit)


def shares(
    groups: Sequence[Mapping[str, Need]], total: int, reserved: int = 0
) -> Mapping[str, int]:
    """Return wheel → bytes that may be read of it, for wheels with any.

    Args:
        groups: wheels by priority; the first group gets all that it can use before the next one.
        total: bytes of all wheels.
        reserved: bytes for other purposes.

    Within a group, small needs are met in full, and the others share the rest.
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
    """Return wheel → bytes that may be read of it, if the first share was too small.

    The unused budget, `spent` being used, goes to wheels that it covers completely, the heaviest
    first, as most can hide there. The rest goes to the heaviest of the others.
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
    """Return the bytes that may be read beyond the lists of wheels of `total` bytes together."""
    return max(total // PART_OF_ALL, FLOOR - total // FLOOR_SINKS)
