"""Further parts of binaries behind their beginnings: ends, middles, and whole members if needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from buildmatrix.base.data import replace
from buildmatrix.facts.binaries.stream import (
    EndSections,
    HeadReader,
    add_end_sections,
    begins_device_code,
    read_end,
)
from buildmatrix.facts.elf.model import Section
from buildmatrix.facts.elf.search import DEVICE_SECTIONS
from buildmatrix.facts.inventory.file_facts import FileFacts, add_contents, inspect_source
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.decompression import ForwardSource
from buildmatrix.facts.trees.zip_archive import DEFLATED, Inflated, Sequential, ZipEntry
from buildmatrix.locks.index.model import (
    CONTAINERS_WHOLE,
    ENDS,
    FIRST_PART,
    HEAD,
    MIDDLE,
    MIDDLES,
    MOST_ENDS,
    NEARLY_SMALL,
    Member,
    is_small,
)
from buildmatrix.locks.index.parts import (
    DLOPEN,
    LARGEST_HEAD,
    Ending,
    WheelParts,
    inflate_end,
    inflate_middle,
)

#: Inflated bytes per step.
PIECE = 64 << 10
#: A binary with no more data than this is not streamed: it hardly makes a wheel foreign.
LITTLE_DATA = 256 << 10
#: A binary whose verdict does not depend on its end.
SOME_DATA = 1 << 20
#: Device code that decides a verdict, however it is packed; without a table of sections, reading
#: continues until so much is found.
MUCH_DEVICE_CODE = 16 << 20
#: Places in the middle of a binary that must show device code if the name of its section is
#: unknown.
ENOUGH_SHOWN = 2


def ends(parts: WheelParts) -> None:
    """Read the ends of binaries with much data, and of those without a dynamic section.

    Segments only show what is loaded, and in most libraries that is tables for unwinding and
    linking. Device code has sections of its own, which show its size. Linkers put the dynamic
    section near the end, patchelf its strings.
    """
    if parts.available is None:
        return
    # Little is decided by the small ones among them.
    unlinked = sorted(
        (parts.members[path] for path in _list_unlinked(parts)),
        key=lambda member: (is_small(member), member.compressed, member.path),
    )
    paths = dict.fromkeys(
        (*_list_with_data(parts, SOME_DATA), *(member.path for member in unlinked))
    )
    waiting = [path for path in paths if path in parts.pages][:MOST_ENDS]
    for length in ENDS:
        places = {path: _locate_end(parts, path, length) for path in waiting}
        waiting = [path for path in waiting if parts.affords(places[path][1])]
        parts.source.load([places[path] for path in waiting])
        waiting = [path for path in waiting if not _look_at_end(parts, path, length)]
        _read_loading(parts)
        waiting = [path for path in waiting if path in parts.pages]
    for path in _list_unlinked(parts):
        end = parts.ends.get(path)
        if end is not None and end.linking:
            _read_again(parts, path, end)
    for path, end in tuple(parts.ends.items()):
        likely = max(end.likely, key=lambda section: section.size, default=None)
        if likely is not None and likely.size > MUCH_DEVICE_CODE:
            _confirm(parts, path, likely)


def _list_unlinked(parts: WheelParts) -> list[str]:
    """Return binaries whose dynamic section was not read, or its strings."""
    return [
        path
        for path, facts in parts.facts.items()
        if facts.elf is not None and not facts.elf.dynamic_read
    ]


def _list_with_data(parts: WheelParts, data: int) -> list[str]:
    """Return binaries with more than `data` unread bytes of data, the most first."""
    unread = {
        path: facts.elf.unread_data
        for path, facts in parts.facts.items()
        if facts.elf is not None and facts.elf.unread_data > data
    }
    return sorted(unread, key=lambda path: (-unread[path], path))


def _locate_end(parts: WheelParts, path: str, length: int) -> tuple[int, int]:
    """Return offset and length of the last `length` bytes of a member in the wheel."""
    entry, start = parts.tree.place(path)
    size = min(length, entry.compressed)
    return start + entry.compressed - size, size


def _look_at_end(parts: WheelParts, path: str, length: int) -> bool:
    """Read the end of a binary; return True if it has its sections, with their names."""
    entry, _ = parts.tree.place(path)
    data = parts.source.read(*_locate_end(parts, path, length))
    end = inflate_end(data) if entry.method == DEFLATED else Ending(data, data, data)
    elf = parts.facts[path].elf
    sections = read_end(parts.pages[path], end, entry.size) if end is not None else None
    if sections is None or elf is None:
        return False
    parts.ends[path] = sections
    if any(DLOPEN in strings for _, strings in sections.linking):
        parts.loading.add(path)
    parts.facts[path] = FileFacts(elf=add_end_sections(elf, sections))
    return bool(sections.named) and (elf.dynamic_read or not sections.is_cut)


def _read_loading(parts: WheelParts) -> None:
    """Read binaries that load others by name whole: those names may be anywhere in their data.

    Only those that are not much larger than small ones, the smallest first.
    """
    waiting = [
        member
        for path in parts.loading
        if path in parts.pages and (member := parts.members[path]).compressed <= NEARLY_SMALL
    ]
    for member in sorted(waiting, key=lambda member: (member.compressed, member.path)):
        if not parts.affords(member.compressed):
            return
        _read_whole(parts, member)


def _read_whole(parts: WheelParts, member: Member) -> None:
    """Read all bytes of a member, which are paid for."""
    parts.pages.pop(member.path, None)
    parts.ends.pop(member.path, None)
    with parts.noting(member.path):
        parts.facts[member.path] = _inspect_whole(parts, member)


def _read_again(parts: WheelParts, path: str, end: EndSections) -> None:
    """Read a beginning again, with the loader's tables from the end.

    If the end has only the strings, which patchelf moves, the section itself is before them.
    """
    member = parts.members[path]
    is_told = any(at < end.dynamic_end <= at + len(data) for at, data in end.linking)
    cost = HEAD if is_told else min(parts.available or 0, member.compressed // FIRST_PART)
    if cost < HEAD or (is_told and not parts.affords(HEAD)):
        parts.limited = True
        return
    with parts.noting(path):
        if is_told:
            data = parts.tree.beginning(path, HEAD, LARGEST_HEAD)
            reader = HeadReader(BytesSource(data), member.size)
            reader.read_to(len(data))
            parts.tell(path, None, reader)
        else:
            _stream(parts, member, cost, end.dynamic_end)


def _confirm(parts: WheelParts, path: str, likely: Section) -> None:
    """Check if a section with an unreachable name has device code, as everything else suggests.

    If device code is found at two places of the binary, there is a run of it, and no other section
    is like those made for such runs.
    """
    entry, start = parts.tree.place(path)
    step = entry.compressed // (MIDDLES + 1)
    shown = 0
    # A section with most of a file covers its middle.
    for number in sorted(range(1, MIDDLES + 1), key=lambda at: abs(2 * at - MIDDLES - 1)):
        if entry.method != DEFLATED or step <= MIDDLE or not parts.affords(MIDDLE):
            return
        middle = inflate_middle(parts.source.read(start + number * step, MIDDLE))
        shown += middle is not None and begins_device_code(middle.copies, likely.name)
        if shown == ENOUGH_SHOWN:
            break
    elf = parts.facts[path].elf
    if shown == ENOUGH_SHOWN and elf is not None:
        end = parts.ends[path] = replace(parts.ends[path], named=(likely,))
        parts.facts[path] = FileFacts(elf=add_end_sections(elf, end))


def links(parts: WheelParts) -> None:
    """Read binaries without a dynamic section whole, if all of them fit the budget.

    Their linked libraries decide a verdict. A first share is too small for that; the second is
    enough.
    """
    waiting = [parts.members[path] for path in _list_unlinked(parts)]
    available = parts.available
    if available is None or sum(member.compressed for member in waiting) > available:
        parts.limited |= bool(waiting) and available is not None
        return
    for member in waiting:
        parts.spent += member.compressed
        _read_whole(parts, member)


def suspects(parts: WheelParts) -> None:
    """Read binaries from their start until device code is found, those with most data first.

    A beginning cannot rule it out: static runtimes leave no name there.
    """
    if parts.available is None:
        return
    waiting = [
        parts.members[path]
        for path in _list_with_data(parts, LITTLE_DATA)
        if (elf := parts.facts[path].elf) is not None and not elf.device_code
    ]
    behind = sum(member.compressed for member in waiting)
    for member in waiting:
        available = parts.available or 0
        is_last = behind == member.compressed
        enough = is_last or behind <= available
        limit = available if enough else min(available, member.compressed // FIRST_PART)
        behind -= member.compressed
        if limit <= HEAD:
            parts.limited = True
            continue
        with parts.noting(member.path):
            _stream(parts, member, limit)


def archives(parts: WheelParts) -> None:
    """Read containers, and large files of device code or objects, whole, the small first.

    A container that would leave the run undecided has a budget of its own: another run would cost
    the user the same.
    """
    if parts.available is None:
        return
    allowance = CONTAINERS_WHOLE
    for member in sorted(parts.archives, key=lambda member: (member.compressed, member.path)):
        cost = member.compressed
        # The part that was read leaves the run undecided.
        if member.path in parts.facts and parts.available < cost <= allowance:
            allowance -= cost
        elif not parts.affords(cost):
            continue
        with parts.noting(member.path):
            parts.facts[member.path] = _inspect_whole(parts, member)
            parts.opened.add(member.path)


def _inspect_whole(parts: WheelParts, member: Member) -> FileFacts:
    """Return the facts of a member from all of its bytes, which are read once."""
    with _inflating(parts, member) as (stream, entry), Inflated(stream, entry.size) as source:
        facts = inspect_source(source, member.path, entry.size)
        return add_contents(facts, source, member.path, entry.size)


@contextmanager
def _inflating(parts: WheelParts, member: Member) -> Iterator[tuple[Sequential, ZipEntry]]:
    """Yield a member as it arrives."""
    entry, start = parts.tree.place(member.path)
    with closing(parts.source.stream(start)) as chunks:
        source = ForwardSource(chunks)
        yield (
            Sequential(
                lambda at, length: source.read(at, min(length, entry.compressed - at)), entry
            ),
            entry,
        )


def _is_enough(parts: WheelParts, path: str, reader: HeadReader) -> bool:
    """Return True if device code was found, with at least a minimum size."""
    device_code = reader.device_code_seen
    end = parts.ends.get(path)
    is_told = end is not None and any(
        section.name.startswith(DEVICE_SECTIONS) and not section.nobits for section in end.named
    )
    return device_code is not None and (is_told or device_code >= MUCH_DEVICE_CODE)


def _stream(parts: WheelParts, member: Member, limit: int, until: int | None = None) -> None:
    """Read a binary from its start until device code is found, or up to its byte `until`."""
    path, size = member.path, member.size
    with (
        _inflating(parts, member) as (stream, entry),
        Inflated(stream, entry.size, ahead=False) as source,
    ):
        reader = HeadReader(source, size)
        try:
            while reader.offset < size and stream.consumed < limit:
                if until is None and _is_enough(parts, path, reader):
                    break
                if until is not None and reader.offset >= until:
                    break
                reader.read_to(reader.offset + PIECE)
        finally:
            parts.spent += stream.consumed
        if reader.offset == size:
            facts = inspect_source(source, path, size)
            parts.facts[path] = add_contents(facts, source, path, size)
        else:
            parts.limited |= reader.device_code_seen is None
            parts.tell(path, None, reader)
