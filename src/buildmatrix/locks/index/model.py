"""Facts of wheels that were read where they lie, and their cache on disk."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.listing import LEAST, may_be_container, may_hide, may_matter
from buildmatrix.facts.inventory.model import SCHEMA, Inventory
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.facts.trees.zip_archive import LARGEST_HELD
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.locks.conda_packages import is_conda_file

if TYPE_CHECKING:
    from buildmatrix.net.addresses import HttpAddress

__all__ = ["DEPTHS", "Depth", "FileVersion", "Member", "Tables", "WheelFacts"]


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
class FileVersion:
    """Version of a file according to its server (RFC 9110, 8.8)."""

    size: int
    etag: str | None = None
    #: `Last-Modified`, unparsed.
    modified: str | None = None

    def is_same(self, version: FileVersion) -> bool:
        """Return True if both have the same bytes: a size or a weak ETag alone proves nothing."""
        is_strong = self.etag is not None and not self.etag.startswith("W/")
        return (is_strong or self.modified is not None) and self == version


class WheelFacts(Struct, frozen=True):
    """Facts of one wheel, to the depth at which it was read."""

    filename: str
    #: Hex: of all bytes if they were read, else the lock's claim; None without a claim.
    sha256: str | None
    #: Bytes of the wheel.
    size: int
    depth: Depth
    inventory: Inventory
    #: All files of the wheel, sorted by path.
    members: tuple[Member, ...]
    #: Bytes received over the network for this result; 0 from the cache and for local files.
    bytes_read: int = 0


class Tables(Struct, frozen=True):
    """The tables of one library of a wheel."""

    #: None for a file that is not a library, and for unsupported locations of the tables.
    elf: Elf | None
    #: Bytes of the wheel that were read, from a cache or not.
    cost: int = 0


# Cache of facts: one entry per wheel and depth.
#
# An entry is valid for one identity. The claim of a lock is not an identity: a lock could claim the
# hash of another wheel, and every later audit of that one would get these facts.
#
# - `content_key`: the SHA-256 that was computed over all bytes of the wheel.
#
# - `place_key`: the URL that the wheel was read from. Its entry has the hash that the lock claimed
# then, and the server's version of the file. It is valid for the same URL with the same claim; with
# another one, or none, only if the server confirms the version.
#
# A new catalogue invalidates nothing here, another scanner or reader of wheels does. No entry shows
# where a wheel came from: identities are hashed.


#: Bytes of all entries together; the least recently used ones go first.
WHEEL_CACHE_LIMIT = 512 << 20
#: Maximum unpacked bytes of an entry.
_LARGEST = 1 << 30


def content_key(sha256: str) -> str:
    """Return the identity of a wheel by its bytes; `sha256` was computed over all of them."""
    return hashlib.sha256(f"content {sha256}".encode()).hexdigest()


def place_key(address: HttpAddress) -> str:
    """Return the identity of a wheel by its URL, without credentials."""
    return hashlib.sha256(f"place {address.url}".encode()).hexdigest()


class WheelEntry(Struct, frozen=True):
    """Cached facts of one wheel, at one depth."""

    identity: str
    facts: WheelFacts
    #: The limit of bytes; None for no limit.
    most: int | None
    #: True if more bytes would have been read within a larger limit.
    limited: bool
    #: Hash claimed by the lock; None without a claim.
    claim: str | None = None
    #: Version according to the server; None if the bytes themselves are the identity.
    version: FileVersion | None = None

    def answers(self, depth: Depth, most: int | None) -> bool:
        """Return True if reading again, to this depth and with this limit, would add nothing."""
        if DEPTHS.index(self.facts.depth) != DEPTHS.index(depth):
            return DEPTHS.index(self.facts.depth) > DEPTHS.index(depth)
        if most == self.most or (most is None and not self.limited):
            return True
        # Without a limit, no member is streamed: that is less than with any limit.
        if self.most is None:
            return False
        return not self.limited or (most is not None and most <= self.most)


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_ENTRY = msgspec.msgpack.Decoder(prepare_type(WheelEntry))


class _Packed:
    """Decodes what `WheelCache` packs."""

    @staticmethod
    def decode(data: bytes | memoryview, /) -> WheelEntry:
        try:
            return _ENTRY.decode(zlib.decompressobj().decompress(data, _LARGEST))
        except zlib.error as error:
            raise msgspec.DecodeError(str(error)) from error


class WheelCache:
    """Cached facts of wheels, in about `limit` bytes."""

    def __init__(self, cache: Cache, limit: int = WHEEL_CACHE_LIMIT) -> None:
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'locks/index')}"
        self._store = cache.store("wheels", version, limit=limit, age=90 * DAY, by_use=True)

    def get(self, identity: str, depth: Depth, most: int | None) -> WheelEntry | None:
        """Return the cached facts of a wheel, at least at this depth; they cost no bytes."""
        for deeper in DEPTHS[DEPTHS.index(depth) :]:
            entry = self._read(identity, deeper)
            if entry is not None and entry.answers(depth, most):
                stats = replace(entry.facts.inventory.stats, bytes_read=0, seconds=0.0)
                stats = replace(stats, cached=stats.files)
                inventory = replace(entry.facts.inventory, stats=stats)
                return replace(entry, facts=replace(entry.facts, inventory=inventory, bytes_read=0))
        return None

    def put(self, entry: WheelEntry) -> None:
        """Store facts of a wheel, unless the same or more is stored already."""
        if not self._store.is_enabled:
            return
        depth = entry.facts.depth
        present = self._read(entry.identity, depth)
        if (
            present is not None
            and (present.claim, present.version) == (entry.claim, entry.version)
            and present.answers(depth, entry.most)
        ):
            return
        bare = replace(entry, facts=replace(entry.facts, bytes_read=0))
        packed = zlib.compress(msgspec.msgpack.encode(bare), 1)
        self._store.put(f"{depth} {entry.identity}", packed)

    def _read(self, identity: str, depth: Depth) -> WheelEntry | None:
        return self._store.load(f"{depth} {identity}", _Packed)


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


class Need(Struct, frozen=True):
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

    @property
    def is_indivisible(self) -> bool:
        """Return True if any smaller share of it would be wasted."""
        return self.packed == self.bytes

    @classmethod
    def of_facts(cls, facts: WheelFacts) -> Need:
        """Compute the need of a file whose list was read; a conda package is read whole."""
        if is_conda_file(facts.filename):
            return cls(facts.size, facts.size, facts.size, packed=facts.size)
        return cls.of(facts.size, facts.members)

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

    Within a group, small needs are met in full, and the others share the rest. Conda packages get
    all or nothing, the small first.
    """
    available = most(total) - reserved
    result: dict[str, int] = {}
    for group in groups:
        names = [name for name in group if name not in result]
        names.sort(key=lambda name: (group[name].most, name))
        for number, name in enumerate(names):
            need = group[name]
            share = min(need.most, available // (len(names) - number))
            if need.is_indivisible:
                share = need.most if need.most <= available else 0
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
