"""Reads a wheel by parts, as deep as is asked: `listing` and `heads` of `index.model.Depth`.

What is read depends on the wheel's directory and on the bytes that may be spent, never on time or
on what was cached: the same question gets the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from buildmatrix.elf.devicefile import HEAD as KIND_HEAD
from buildmatrix.elf.devicefile import kind_of
from buildmatrix.elf.ending import Sections, read_end, shows, with_sections
from buildmatrix.elf.head import HeadReader, Malformed
from buildmatrix.elf.model import DeviceFile, Section
from buildmatrix.elf.regions import DEVICE_SECTIONS
from buildmatrix.elf.source import BytesSource
from buildmatrix.index.amounts import (
    ENDS,
    FEW_PYTHON,
    FIRST_PART,
    HEAD,
    MIDDLE,
    MIDDLES,
    MOST_ENDS,
    SMALL,
    SNIFF,
    masked,
)
from buildmatrix.index.ending import Ending, inflate_end, inflate_middle
from buildmatrix.index.forward import Forward
from buildmatrix.index.members import LARGEST_PACKED, HeldTree, Within, is_metadata, seen_in
from buildmatrix.index.model import Depth, Member
from buildmatrix.inventory.collect import ELF_MAGIC, Seen, look
from buildmatrix.inventory.mattering import may_matter
from buildmatrix.inventory.model import Inventory
from buildmatrix.inventory.nested import Contents, recognised
from buildmatrix.inventory.python_source import outline
from buildmatrix.inventory.python_stages import Stages
from buildmatrix.inventory.shallow import collect_shallow
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.inflating import Sequential
from buildmatrix.trees.wheel import LARGEST_HELD, Packed, WheelTree, opened_member
from buildmatrix.trees.zipdirectory import DEFLATED, STORED, TAIL, read_directory

#: What they inflate to at most; a library's inflate to 100 to 500 KiB.
LARGEST_HEAD = 8 << 20
#: Compressed bytes of an archive in a wheel that is read whole, and those of the list of files of
#: one that is stored.
LARGEST_OPENED = 4 << 20
LARGEST_LISTING = 2 << 20
#: Bytes around a member's data: its header, with a long name and an extra field.
AROUND = 1 << 10
#: Bytes that are asked for at a time, and that are held then.
BATCH = 2 << 20
#: Inflated bytes that are searched at a time.
PIECE = 1 << 20
#: A binary with no more data than this is not streamed: it is hardly what makes a wheel foreign.
LITTLE_DATA = 256 << 10
#: Nor does a verdict hang on it, whatever its end says.
SOME_DATA = 1 << 20
#: Device code that decides a verdict however it is packed; where no table of sections says how much
#: there is, a look goes on until so much has shown.
MUCH_DEVICE_CODE = 16 << 20
#: Places in the middle of a binary that have to show device code, where names do not say that a
#: section is made for it.
ENOUGH_SHOWN = 2
#: Inflated bytes of a beginning that are kept for its end: the headers of a file and its segments.
FIRST_PAGE = 4 << 10


class Ranged(Protocol):
    """A wheel that can be read by parts: `index.remote.RemoteFile`, or a local file."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on."""

    def load(self, parts: Sequence[tuple[int, int]]) -> None:
        """Bring (offset, length) parts at once, so that `read` finds them."""

    def stream(self, offset: int = 0) -> Iterator[bytes]:
        """Everything from `offset` on, in order."""


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
        parts = _Parts(source, tree, most)
        parts.listing()
        if depth != "listing":
            parts.heads()
            parts.ends()
            parts.links()
            parts.python()
            parts.suspects()
            parts.archives()
        held = HeldTree(tree.walk(), parts.held)
        inventory = collect_shallow(held, parts.seen, parts.opened, parts.unmasked, parts.lazy)
        return Reading(inventory, tree.members, parts.limited)


class _Parts:
    """What is known of one wheel so far."""

    def __init__(self, source: Ranged, tree: WheelTree, most: int | None) -> None:
        self._source = source
        self._tree = tree
        self._most = most
        self._spent = 0
        self._members = {one.path: one for one in tree.members}
        self.held: dict[str, Packed] = {}
        self.seen: dict[str, Seen] = {}
        #: Files that were looked into.
        self.opened: set[str] = set()
        #: Files with harmless names that are binaries by their first bytes.
        self.unmasked: set[str] = set()
        #: Python files that were not looked into, and that no import runs.
        self.lazy: Collection[str] = frozenset()
        self.limited = False
        #: The first page of those binaries that were read in part, and what their ends said.
        self._pages: dict[str, bytes] = {}
        self._ends: dict[str, Sections] = {}
        #: Large files with device code that are no ELF: all of their bytes say what it is.
        self._archives: list[Member] = []

    @property
    def _left(self) -> int | None:
        return None if self._most is None else max(0, self._most - self._spent)

    def _affords(self, cost: int) -> bool:
        """Whether `cost` bytes may be spent; then they are."""
        left = self._left
        if left is not None and cost > left:
            self.limited = True
            return False
        self._spent += cost
        return True

    def _batches(self, costs: dict[str, int]) -> Iterator[str]:
        """The members `costs`, the first bytes of each brought in time, in the wheel's order."""
        batch: list[tuple[str, tuple[int, int]]] = []
        taken = 0
        for path in sorted(costs, key=self._tree.extent):
            start, end = self._tree.extent(path)
            length = min(end - start, costs[path] + AROUND + len(path.encode()))
            if batch and taken + length > BATCH:
                yield from self._brought(batch)
                batch, taken = [], 0
            batch.append((path, (start, length)))
            taken += length
        yield from self._brought(batch)

    def _brought(self, batch: list[tuple[str, tuple[int, int]]]) -> Iterator[str]:
        self._source.load([part for _, part in batch])
        yield from (path for path, _ in batch)

    def _hold(self, costs: dict[str, int]) -> None:
        for path in self._batches(costs):
            try:
                self.held[path] = self._tree.packed(path)
            except Unreadable as error:
                self.seen[path] = Seen(unread=str(error))

    # Depths

    def listing(self) -> None:
        """The metadata folder."""
        self._hold(
            {
                one.path: one.compressed
                for one in self._members.values()
                if is_metadata(one.path) and one.compressed <= LARGEST_PACKED
            }
        )
        self.opened.update(self.held)

    def heads(self) -> None:
        """The beginning of everything that may be a binary, the largest first."""
        members = sorted(self._members.values(), key=lambda one: (-one.compressed, one.path))
        wanted = [
            one
            for one in members
            if not one.path.endswith(".py") and may_matter(one.path, one.size)
        ]
        sniffed = {
            one.path: SNIFF
            for one in masked(self._members.values())
            if one.path not in self.held and self._affords(min(one.compressed, SNIFF))
        }
        costs = self._afforded(wanted)
        # Both at a time: they lie among each other.
        for path in self._batches({**costs, **sniffed}):
            if path in costs:
                self._look(self._members[path])
            else:
                self._sniff(path)
        unmasked = [one for one in members if one.path in self.unmasked]
        for path in self._batches(self._afforded(unmasked)):
            self._look(self._members[path])

    def _afforded(self, members: Iterable[Member]) -> dict[str, int]:
        """Those whose beginnings may be read, with the bytes that those take."""
        costs: dict[str, int] = {}
        for one in members:
            cost = one.compressed if _is_small(one) else HEAD
            if self._affords(cost):
                costs[one.path] = cost
        return costs

    def _sniff(self, path: str) -> None:
        """Look at the first bytes of a member with a harmless name: it may be a binary."""
        try:
            head = self._tree.beginning(path, SNIFF, KIND_HEAD)
        except Unreadable as error:
            self.seen[path] = Seen(unread=str(error))
            return
        if head.startswith(ELF_MAGIC) or kind_of(path, head) is not None:
            self.unmasked.add(path)
        else:
            self.opened.add(path)

    def _look(self, member: Member) -> None:
        path = member.path
        self.opened.add(path)
        try:
            if _is_small(member):
                self.seen[path] = seen_in(path, self._tree.packed(path).unpack())
                return
            data = self._tree.beginning(path, HEAD, LARGEST_HEAD)
            kind = kind_of(path, data[:KIND_HEAD])
            reader = HeadReader(member.size)
            if data.startswith(ELF_MAGIC):
                reader.feed(data)
                self._pages[path] = data[:FIRST_PAGE]
                self._tell(path, kind, reader)
            elif (contents := recognised(BytesSource(data), data, member.size)) is not None:
                self._look_inside(member, contents)
            elif kind is not None:
                # Its beginning does not say what it holds.
                self.opened.discard(path)
                self._archives.append(member)
        except Unreadable as error:
            self.seen[path] = Seen(unread=str(error))
        except Malformed as error:
            self.seen[path] = Seen(unread=error.reason)

    def _look_inside(self, member: Member, contents: Contents) -> None:
        """Read a container whole where that is little; of a stored ZIP the directory says enough.

        Else it stays closed: deflate cannot be entered at the directory of a ZIP.
        """
        path = member.path
        entry, start = self._tree.place(path)
        if member.compressed <= LARGEST_OPENED and member.size <= LARGEST_HELD:
            if self._affords(member.compressed):
                self.seen[path] = seen_in(path, self._tree.packed(path).unpack())
                return
        elif contents.kind == "zip" and entry.method == STORED and self._affords(TAIL):
            source = Within(self._source, start, entry.size, LARGEST_LISTING)
            try:
                files = read_directory(source)
            except Unreadable:
                files = None
            self._spent += max(0, source.bytes_read - TAIL)
            if files is not None and not any(may_matter(one.name, one.size) for one in files):
                return
        self.opened.discard(path)

    def _tell(self, path: str, kind: str | None, reader: HeadReader) -> None:
        end = self._ends.get(path)
        if end is not None and reader.offset < self._members[path].size:
            for start, data in end.linking:
                reader.lend(start, data)
        head = reader.head()
        assert head is not None  # its magic number was seen
        if kind is None:
            end = end if head.elf.read is not None else None
            self.seen[path] = Seen(elf=with_sections(head.elf, end) if end else head.elf)
        else:
            device = DeviceFile(kind, head.elf.device_code, unread=head.elf.unread)
            self.seen[path] = Seen(device=device)

    def python(self) -> None:
        """The Python files: all of them where they are few, else those that an import runs."""
        costs = {
            one.path: one.compressed
            for one in self._members.values()
            if one.path.endswith(".py")
            and may_matter(one.path, one.size)
            and one.compressed <= LARGEST_PACKED
        }
        total = sum(costs.values())
        left = self._left
        if total <= max(FEW_PYTHON, 0 if left is None else left // 4):
            if self._affords(total):
                self._read_python(costs)
            return
        stages = Stages(path for path in self._members if path.endswith(".py"))
        reached = dict.fromkeys(stages.first())
        ahead = list(reached)
        while ahead:
            stage = {path: costs[path] for path in ahead if path in costs}
            if not self._affords(sum(stage.values())):
                return
            found = (
                path
                for read, source in self._read_python(stage)
                for path in stages.after(read, source)
            )
            ahead = [path for path in dict.fromkeys(found) if path not in reached]
            reached.update(dict.fromkeys(ahead))
        self.lazy = costs.keys() - reached.keys()

    def _read_python(self, costs: dict[str, int]) -> list[tuple[str, bytes]]:
        """Look into Python files; those that could be read, with their bytes."""
        self._hold(costs)
        read: list[tuple[str, bytes]] = []
        for path in costs:
            if path not in self.held:
                continue
            self.opened.add(path)
            try:
                source = self.held[path].unpack()
            except Unreadable as error:
                self.seen[path] = Seen(unread=str(error))
                continue
            self.seen[path] = Seen(outline=outline(source))
            read.append((path, source))
        return read

    def links(self) -> None:
        """Binaries whose dynamic section was not reached: whole, if all of them can be.

        What they link decides a verdict. A first share is too small for that; what a second look
        may spend is enough.
        """
        waiting = [self._members[path] for path in self._unlinked()]
        left = self._left
        if left is None or sum(one.compressed for one in waiting) > left:
            self.limited |= bool(waiting) and left is not None
            return
        for member in waiting:
            self._spent += member.compressed
            try:
                self.seen[member.path] = self._whole(member)
            except Unreadable as error:
                self.seen[member.path] = Seen(unread=str(error))

    def _unlinked(self) -> list[str]:
        """Binaries whose dynamic section was not read, with its strings."""
        return [
            path
            for path, seen in self.seen.items()
            if seen.elf is not None and not seen.elf.dynamic_read
        ]

    def ends(self) -> None:
        """The ends of binaries with much data, and of those whose dynamic section was not read.

        Segments only say what is loaded, and in most libraries that is tables for unwinding and
        linking. Device code has sections of its own, which say how much of it there is. Linkers
        put the dynamic section near the end, patchelf its strings.
        """
        if self._most is None:
            return
        wanted = dict.fromkeys((*self._with_data(SOME_DATA), *self._unlinked()))
        waiting = [path for path in wanted if path in self._pages][:MOST_ENDS]
        for length in ENDS:
            places = {path: self._end(path, length) for path in waiting}
            waiting = [path for path in waiting if self._affords(places[path][1])]
            self._source.load([places[path] for path in waiting])
            waiting = [path for path in waiting if not self._look_at_end(path, length)]
        for path in self._unlinked():
            end = self._ends.get(path)
            if end is not None and end.linking:
                self._link(path, end)
        for path, end in tuple(self._ends.items()):
            likely = max(end.likely, key=lambda one: one.size, default=None)
            if likely is not None and likely.size > MUCH_DEVICE_CODE:
                self._confirm(path, likely)

    def _link(self, path: str, end: Sections) -> None:
        """Look at a beginning again, now that the end told what the loader links by.

        Where that is but the strings, which patchelf moves, the section itself lies before them.
        """
        member = self._members[path]
        is_told = any(at < end.dynamic_end <= at + len(data) for at, data in end.linking)
        cost = HEAD if is_told else min(self._left or 0, member.compressed // FIRST_PART)
        if cost < HEAD or (is_told and not self._affords(HEAD)):
            self.limited = True
            return
        try:
            if is_told:
                reader = HeadReader(member.size)
                reader.feed(self._tree.beginning(path, HEAD, LARGEST_HEAD))
                self._tell(path, None, reader)
            else:
                self._stream(member, cost, end.dynamic_end)
        except (Unreadable, Malformed) as error:
            self.seen[path] = Seen(unread=str(error))

    def _confirm(self, path: str, likely: Section) -> None:
        """See whether a section whose name is out of reach holds device code, as all else says.

        Where device code shows at two places of the binary, there is a run of it, and no other
        section is like those that are made for such runs.
        """
        entry, start = self._tree.place(path)
        step = entry.compressed // (MIDDLES + 1)
        shown = 0
        # What takes most of a file covers its middle.
        for number in sorted(range(1, MIDDLES + 1), key=lambda at: abs(2 * at - MIDDLES - 1)):
            if entry.method != DEFLATED or step <= MIDDLE or not self._affords(MIDDLE):
                return
            middle = inflate_middle(self._source.read(start + number * step, MIDDLE))
            shown += middle is not None and shows(middle.copies, likely.name)
            if shown == ENOUGH_SHOWN:
                break
        elf = self.seen[path].elf
        if shown == ENOUGH_SHOWN and elf is not None:
            end = self._ends[path] = replace(self._ends[path], named=(likely,))
            self.seen[path] = Seen(elf=with_sections(elf, end))

    def _with_data(self, data: int) -> list[str]:
        """Binaries with more than so much data that was not read, the most first."""
        found = {
            path: seen.elf.unread_data
            for path, seen in self.seen.items()
            if seen.elf is not None and seen.elf.unread_data > data
        }
        return sorted(found, key=lambda path: (-found[path], path))

    def _end(self, path: str, length: int) -> tuple[int, int]:
        """Offset and length of the last `length` bytes of a member, as it is in the wheel."""
        entry, start = self._tree.place(path)
        taken = min(length, entry.compressed)
        return start + entry.compressed - taken, taken

    def _look_at_end(self, path: str, length: int) -> bool:
        """Read the end of a binary; whether that told its sections, with their names."""
        entry, _ = self._tree.place(path)
        data = self._source.read(*self._end(path, length))
        end = inflate_end(data) if entry.method == DEFLATED else Ending(data, data, data)
        seen = self.seen[path].elf
        told = read_end(self._pages[path], end, entry.size) if end is not None else None
        if told is None or seen is None:
            return False
        self._ends[path] = told
        self.seen[path] = Seen(elf=with_sections(seen, told))
        return bool(told.named) and (seen.dynamic_read or not told.is_cut)

    def suspects(self) -> None:
        """Binaries from their start on until device code was seen, those with most data first.

        Nothing in a beginning rules it out: static runtimes leave no name there.
        """
        if self._most is None:
            return
        waiting = [
            self._members[path]
            for path in self._with_data(LITTLE_DATA)
            if (elf := self.seen[path].elf) is not None and not elf.device_code
        ]
        behind = sum(one.compressed for one in waiting)
        for member in waiting:
            left = self._left or 0
            is_last = behind == member.compressed
            enough = is_last or behind <= left
            limit = left if enough else min(left, member.compressed // FIRST_PART)
            behind -= member.compressed
            if limit <= HEAD:
                self.limited = True
                continue
            try:
                self._stream(member, limit)
            except (Unreadable, Malformed) as error:
                self.seen[member.path] = Seen(unread=str(error))

    def archives(self) -> None:
        """Large files that are nothing but device code, or hold objects: whole, the small first."""
        if self._most is None:
            return
        for member in sorted(self._archives, key=lambda one: (one.compressed, one.path)):
            if not self._affords(member.compressed):
                continue
            try:
                self.seen[member.path] = self._whole(member)
                self.opened.add(member.path)
            except Unreadable as error:
                self.seen[member.path] = Seen(unread=str(error))

    def _whole(self, member: Member) -> Seen:
        """What a member is by all of its bytes, which are read once."""
        entry, start = self._tree.place(member.path)
        streams: list[Forward] = []

        def begin() -> Sequential:
            if streams:
                raise Unreadable("a part of it is needed again after it has passed by")
            forward = Forward(self._source.stream(start))
            streams.append(forward)
            return Sequential(
                lambda at, length: forward.exactly(min(length, entry.compressed - at)), entry
            )

        try:
            return look(opened_member(begin, entry.size), member.path, entry.size)
        finally:
            for forward in streams:
                forward.close()

    def _is_enough(self, path: str, reader: HeadReader) -> bool:
        """Whether device code showed, and something says how much of it there is at least."""
        seen = reader.device_code_seen
        end = self._ends.get(path)
        is_told = end is not None and any(
            one.name.startswith(DEVICE_SECTIONS) and not one.nobits for one in end.named
        )
        return seen is not None and (is_told or seen >= MUCH_DEVICE_CODE)

    def _stream(self, member: Member, limit: int, until: int | None = None) -> None:
        """Read a binary from its start until device code showed, or up to its byte `until`."""
        entry, start = self._tree.place(member.path)
        forward = Forward(self._source.stream(start))
        stream = Sequential(
            lambda at, length: forward.exactly(min(length, entry.compressed - at)), entry
        )
        reader = HeadReader(member.size)
        try:
            while stream.taken < limit and not (
                self._is_enough(member.path, reader) if until is None else reader.offset >= until
            ):
                data = stream.read(PIECE)
                if not data:
                    break
                reader.feed(data)
        finally:
            forward.close()
            self._spent += stream.taken
        self.limited |= stream.given < member.size and reader.device_code_seen is None
        self._tell(member.path, None, reader)


def _is_small(member: Member) -> bool:
    return member.compressed <= SMALL and member.size <= LARGEST_HELD
