"""How much of a wheel is read at `heads`; budgets are computed from the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.inventory.mattering import LEAST, may_hide
from buildmatrix.trees.inflating import LARGEST_HELD
from buildmatrix.trees.wheel import Member

#: Parts that are this close to each other are one request: a request costs as much as these bytes.
GAP = 64 << 10
#: Compressed bytes of a member that are read as its beginning. In half of the large libraries the
#: names that they link stand in them.
HEAD = 64 << 10
#: Compressed bytes of a member that are read where its name says that it is harmless, and how many
#: small members are looked at so, the largest first: their first bytes say what they are.
SNIFF = 1 << 10
MOST_SNIFFED = 32
#: A member with fewer compressed bytes is read whole: its facts are then complete.
SMALL = 256 << 10
#: A larger one with no more than this is read whole where it loads libraries by name, which stand
#: anywhere in its data.
NEARLY_SMALL = 512 << 10
#: Compressed bytes of all Python files together that are read anyway. What an import reaches cannot
#: be known from a part of them.
FEW_PYTHON = 1 << 20
#: A member is streamed up to this part of it as long as others wait, and there is not enough for
#: all: where device code is most of a file, most often it begins before.
FIRST_PART = 4
#: Compressed bytes of a member that are read as its end, where its beginning leaves open what its
#: data is: at first, and where that does not hold the names of all sections. Deflate begins a block
#: every 10 to 40 KiB.
ENDS = (64 << 10, 256 << 10)
#: Binaries of one wheel whose ends are read; those with most data first.
MOST_ENDS = 16
#: Compressed bytes of a member that are read somewhere in its middle, to see whether device code
#: lies there, and how many such places are tried. One program for several architectures takes
#: some 500 KB.
MIDDLE = 512 << 10
MIDDLES = 8

#: Bytes of the large containers of one wheel that are read whole beyond its share: the jar of ray,
#: whose list of files alone does not settle it, has 32 MB.
CONTAINERS_WHOLE = 48 << 20
#: Compressed bytes of a deflated archive that are read as its end, one after the other until they
#: hold its list of files. That of h2o's jar, with 79,000 files, takes 2 MB.
NESTED_ENDS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
#: Compressed bytes of a library that are read as its end, until they hold its dynamic section. Data
#: lie behind that: 1.3 MB in libnvJitLink.so.12, which take 600 KB.
DYNAMIC_ENDS = (128 << 10, 512 << 10, 3 << 19)


def is_small(member: Member) -> bool:
    """Return True if a member is read whole where there is enough."""
    return member.compressed <= SMALL and member.size <= LARGEST_HELD


def tables_cost(member: Member) -> int:
    """Bytes that the tables of a member take at most, but for its symbols."""
    return (
        member.compressed if is_small(member) else min(member.compressed, HEAD + DYNAMIC_ENDS[-1])
    )


def nested_ends(compressed: int) -> tuple[int, ...]:
    """The lengths that are tried of an archive: all of it costs little more than half of it."""
    return tuple(length for length in NESTED_ENDS if length <= compressed // FIRST_PART)


def masked(members: Iterable[Member]) -> Iterator[Member]:
    """Files with harmless names whose first bytes are asked what they are, the largest first.

    All large ones, and some of the small: those decide next to nothing, and there may be thousands.
    """
    candidates = [member for member in members if may_hide(member.path, member.size)]
    candidates.sort(key=lambda member: (-member.compressed, member.path))
    for number, member in enumerate(candidates):
        if member.size >= LEAST or number < MOST_SNIFFED:
            yield member


def useful(member: Member) -> int:
    """Bytes of a member that is not small that a first look can use."""
    if member.compressed <= NEARLY_SMALL:
        return member.compressed + HEAD
    return max(HEAD, member.compressed // FIRST_PART)
