"""The beginning of everything in a wheel that may be a binary."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.elf.devicefile import HEAD as KIND_HEAD
from buildmatrix.elf.devicefile import kind_of
from buildmatrix.elf.head import HeadReader, Malformed
from buildmatrix.elf.source import BytesSource
from buildmatrix.index.amounts import HEAD, SMALL, SNIFF, masked, useful
from buildmatrix.index.members import Within, seen_in
from buildmatrix.index.model import Member
from buildmatrix.index.parts import DLOPEN, LARGEST_HEAD, WheelParts
from buildmatrix.inventory.collect import ELF_MAGIC, Seen
from buildmatrix.inventory.mattering import may_matter
from buildmatrix.inventory.nested import Contents, recognised
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.wheel import LARGEST_HELD
from buildmatrix.trees.zipdirectory import STORED, TAIL, read_directory

#: Compressed bytes of an archive in a wheel that is read whole, and those of the list of files of
#: one that is stored.
LARGEST_OPENED = 4 << 20
LARGEST_LISTING = 2 << 20
#: Inflated bytes of a beginning that are kept for its end: the headers of a file and its segments.
FIRST_PAGE = 4 << 10
#: Part of the bytes allowed that small binaries leave to large ones, where there is not enough for
#: all.
PART_KEPT = 4


def heads(parts: WheelParts) -> None:
    """The beginning of everything that may be a binary, the largest first."""
    members = sorted(parts.members.values(), key=lambda one: (-one.compressed, one.path))
    wanted = [
        one for one in members if not one.path.endswith(".py") and may_matter(one.path, one.size)
    ]
    sniffed = {
        one.path: SNIFF
        for one in masked(parts.members.values())
        if one.path not in parts.held and parts.affords(min(one.compressed, SNIFF))
    }
    costs = _afforded(parts, wanted)
    # Both at a time: they lie among each other.
    for path in parts.batches({**costs, **sniffed}):
        if path in costs:
            _look(parts, parts.members[path], costs[path])
        else:
            _sniff(parts, path)
    unmasked = [one for one in members if one.path in parts.unmasked]
    costs = _afforded(parts, unmasked)
    for path in parts.batches(costs):
        _look(parts, parts.members[path], costs[path])


def _afforded(parts: WheelParts, members: Sequence[Member]) -> dict[str, int]:
    """Those whose beginnings may be read, with the bytes that those take.

    Small ones are read whole, the smallest first. Where the bytes are scarce they leave some to the
    large ones, of which a beginning says least.
    """
    large = [one for one in members if not is_small(one)]
    costs = {one.path: HEAD for one in large if parts.affords(HEAD)}
    small = [one for one in members if is_small(one)]
    kept = 0
    if parts.most is not None:
        kept = min(parts.most // PART_KEPT, sum(useful(one) - HEAD for one in large))
        kept += sum(min(one.compressed, HEAD) for one in small)
    for one in sorted(small, key=lambda one: (one.compressed, one.path)):
        beginning = min(one.compressed, HEAD)
        kept -= beginning
        left = parts.left
        is_scarce = left is not None and one.compressed > left - kept
        cost = beginning if is_scarce else one.compressed
        parts.limited |= cost < one.compressed
        if parts.affords(cost):
            costs[one.path] = cost
    return costs


def _sniff(parts: WheelParts, path: str) -> None:
    """Look at the first bytes of a member with a harmless name: it may be a binary."""
    try:
        head = parts.tree.beginning(path, SNIFF, KIND_HEAD)
    except Unreadable as error:
        parts.seen[path] = Seen(unread=str(error))
        return
    if head.startswith(ELF_MAGIC) or kind_of(path, head) is not None:
        parts.unmasked.add(path)
    else:
        parts.opened.add(path)


def _look(parts: WheelParts, member: Member, length: int) -> None:
    """Look at the first `length` bytes of a member, as it is packed."""
    path = member.path
    parts.opened.add(path)
    try:
        if length >= member.compressed and is_small(member):
            parts.seen[path] = seen_in(path, parts.tree.packed(path).unpack())
            return
        data = parts.tree.beginning(path, HEAD, LARGEST_HEAD)
        kind = kind_of(path, data[:KIND_HEAD])
        reader = HeadReader(member.size)
        if data.startswith(ELF_MAGIC):
            reader.feed(data)
            parts.pages[path] = data[:FIRST_PAGE]
            if DLOPEN in data:
                parts.loading.add(path)
            parts.tell(path, kind, reader)
        elif (contents := recognised(BytesSource(data), data, member.size)) is not None:
            _look_inside(parts, member, contents)
        elif kind is not None:
            # Its beginning does not say what it holds.
            parts.opened.discard(path)
            parts.archives.append(member)
    except Unreadable as error:
        parts.seen[path] = Seen(unread=str(error))
    except Malformed as error:
        parts.seen[path] = Seen(unread=error.reason)


def _look_inside(parts: WheelParts, member: Member, contents: Contents) -> None:
    """Read a container whole where that is little; of a stored ZIP the directory says enough.

    Else it stays closed: deflate cannot be entered at the directory of a ZIP.
    """
    path = member.path
    entry, start = parts.tree.place(path)
    if member.compressed <= LARGEST_OPENED and member.size <= LARGEST_HELD:
        if parts.affords(member.compressed):
            parts.seen[path] = seen_in(path, parts.tree.packed(path).unpack())
            return
    elif contents.kind == "zip" and entry.method == STORED and parts.affords(TAIL):
        source = Within(parts.source, start, entry.size, LARGEST_LISTING)
        try:
            files = read_directory(source)
        except Unreadable:
            files = None
        parts.spent += max(0, source.bytes_read - TAIL)
        if files is not None and not any(may_matter(one.name, one.size) for one in files):
            return
    parts.opened.discard(path)


def is_small(member: Member) -> bool:
    """Whether a member is read whole where there is enough."""
    return member.compressed <= SMALL and member.size <= LARGEST_HELD
