"""Device code of one file, summed up and grouped by architecture and kernel names."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from buildmatrix.facts.binaries import fat_binaries
from buildmatrix.facts.elf.model import CodeContainer, CodeGroup, DeviceCode, newer_version
from buildmatrix.facts.elf.search import DEVICE_SECTIONS
from buildmatrix.facts.trees.base import ByteSource

# Kernel names from the first bytes of a piece.
#
# No tables are followed: compilers put the names of sections and symbols first, so the beginning
# has them, compressed or not. In a cubin each kernel has a section for its constants, and each
# function one for its code; AMD code objects have a symbol `NAME.kd` per kernel; PTX declares
# kernels.


#: Decompressed bytes of a piece that are examined.
HEAD = 32 << 10
#: Bytes on disk read for them.
_PACKED = 128 << 10
#: Longest name, in characters; names in CUTLASS reach four thousand.
LONGEST_NAME = 512
_NAME = rb"(?P<name>[A-Za-z_$.][\w$.]{0,%d})" % (LONGEST_NAME - 1)
#: Patterns by kind of code. The last pattern of a list shows if there is any code at all.
_PATTERNS = {
    "sass": (
        re.compile(rb"\0\.nv\.constant0\.%b" % _NAME),
        re.compile(rb"\0\.text\.%b" % _NAME),
    ),
    "ptx": (re.compile(rb"\.entry\s+%b" % _NAME),),
    "amdgcn": (re.compile(rb"\0%b\.kd(?=\0)" % _NAME),),
}
#: A part of a name mangled per the Itanium C++ ABI: a length, then as many letters.
_PART = re.compile(r"L?(\d{1,4})")
_ANONYMOUS = "_GLOBAL__N_"


def read_kernel_names(
    source: ByteSource, entry: DeviceCode, most: int
) -> tuple[tuple[str, ...], bool]:
    """Return up to `most` kernel names of a piece, and True if it certainly has none.

    Returns no names for an unreadable piece or an unsupported format.
    """
    patterns = _PATTERNS.get(entry.kind, ())
    try:
        data, is_whole = _read_head(source, entry) if patterns else (b"", False)
    except (ValueError, zlib.error):
        return (), False
    for pattern in patterns:
        # A name that runs past these bytes is incomplete.
        names = dict.fromkeys(
            match["name"].decode()
            for match in pattern.finditer(data)
            if is_whole or match.end() < len(data)
        )
        if names:
            return tuple(names)[:most], False
    return (), is_whole and bool(data)


def _read_head(source: ByteSource, entry: DeviceCode) -> tuple[bytes, bool]:
    """Return the first bytes of a piece, True if that is all. Raises ValueError, zlib.error."""
    if entry.format == "nv-fatbin":
        return fat_binaries.read_payload(source, entry, _PACKED, HEAD)
    if entry.format == "hip-ccob":
        return fat_binaries.read_first_image(source, entry, _PACKED, HEAD), False
    if entry.compressed:
        return b"", False
    return source.read(entry.offset, min(HEAD, entry.size)), entry.size <= HEAD


def demangle(symbol: str) -> str:
    """Return `at::native::fill_kernel` for a mangled name, without arguments; others unchanged."""
    if not symbol.startswith("_Z"):
        return symbol
    at = 3 if symbol.startswith("_ZN") else 2
    parts: list[str] = []
    while match := _PART.match(symbol, at):
        end = match.end() + int(match[1])
        part = symbol[match.end() : end]
        if not part.startswith(_ANONYMOUS):
            parts.append(part)
        at = end
        if symbol[2] != "N":
            break
    return "::".join(parts) or symbol


# Sums


#: Distinct (format, kind, architecture) per file; real files have up to a hundred.
MOST_SUMS = 2048


class Sums:
    """Sums of one file; overflow is reported in `unread`."""

    def __init__(self, unread: list[str]) -> None:
        self._unread = unread
        self._sums: dict[tuple[str, str, str | None], _Sum] = {}

    def add(self, code: DeviceCode, section: str | None = None) -> None:
        """Add a piece of code in `section`, or another sum."""
        key = (code.format, code.kind, code.arch)
        present = self._sums.get(key)
        if present is not None:
            present.count += code.count
            present.size += code.size
            present.compressed += code.compressed
            present.note = present.note or code.note
            present.language = newer_version(present.language, code.language)
            if code.offset < present.first.offset:
                present.first = replace(code, section=section or code.section)
        elif len(self._sums) <= MOST_SUMS:
            if len(self._sums) == MOST_SUMS:
                self._unread.append(f"only the first {MOST_SUMS} kinds of device code were counted")
            first = replace(code, section=section or code.section)
            self._sums[key] = _Sum(
                first, code.count, code.size, code.compressed, code.note, code.language
            )

    def device_code(self) -> tuple[DeviceCode, ...]:
        """Return the sums, in an order that depends only on the bytes."""
        sums = (
            replace(
                s.first,
                count=s.count,
                size=s.size,
                compressed=s.compressed,
                note=s.note,
                language=s.language,
            )
            for s in self._sums.values()
        )
        return tuple(sorted(sums, key=lambda s: (s.format, s.kind, s.arch or "", s.offset)))


@dataclass(slots=True)
class _Sum:
    """Running counts, with the entry that comes first in the file."""

    first: DeviceCode
    count: int
    size: int
    compressed: int
    note: str | None
    language: str | None


# Groups by architecture.
#
# A compiler makes one container per translation unit, with code for all requested architectures. If
# one unit was compiled for fewer than the others, the file as a whole supports an architecture that
# some of its kernels do not.


#: Containers that can hold code for several architectures; others hold one each.
_JOINING = frozenset({"nv-fatbin", "hip-bundle", "hip-ccob", "offload-bundle"})
#: Section in which `nvcc -rdc` leaves the objects linked into another container.
_RELOCATABLE = "__nv_relfatbin"

#: Different sets of architectures in one file; real files have at most seven.
MOST_GROUPS = 64
#: Objects per group whose kernels are listed, and names per object.
_PIECES_OF_GROUP = 4
_NAMES_OF_OBJECT = 2
#: Names read per object: templates put the same kernels into many objects.
_READ_OF_OBJECT = 32
#: Files without kernels and link steps give containers too; a piece of one has 300 bytes to 2 KiB.
_SMALL = 4 << 10
#: Pieces of small containers that are examined, at 0.5 ms each in hostile files.
MOST_SMALL = 1 << 12

_Key = tuple[str, tuple[str, ...], bool]


@dataclass(slots=True)
class _Group:
    """Counts of one group."""

    offset: int
    count: int = 0
    size: int = 0
    #: A piece of each of the first objects.
    pieces: list[DeviceCode] = field(default_factory=list)


class Groups:
    """Groups of the objects of one file."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._groups: dict[_Key, _Group] = {}
        self._small: list[tuple[_Key, tuple[DeviceCode, ...]]] = []
        self._pieces = 0

    def add(self, container: CodeContainer, section: str | None) -> None:
        """Count one object, unless some of its code has no architecture.

        A program loads code in other data itself, and can choose among objects for one architecture
        each.
        """
        entries = container.entries
        if not entries or entries[0].format not in _JOINING:
            return
        # Code that a program links itself does not run as it is.
        loaded = (entry for entry in entries if entry.kind != "lto-ir")
        archs = {entry.arch for entry in loaded if entry.arch is not None}
        if not archs:
            return
        is_chosen = not (section or "").startswith(DEVICE_SECTIONS) and len(archs) == 1
        if is_chosen or any(entry.arch is None or entry.kind == "unknown" for entry in entries):
            return
        is_relocatable = section is not None and section.startswith(_RELOCATABLE)
        key = (entries[0].format, tuple(sorted(archs)), is_relocatable)
        if key not in self._groups and len(self._groups) >= MOST_GROUPS:
            key = (entries[0].format, (), False)
        group = self._groups.setdefault(key, _Group(entries[0].offset))
        self._count(group, entries, 1)
        if len(group.pieces) < _PIECES_OF_GROUP:
            group.pieces.append(min(entries, key=lambda entry: (entry.kind == "ptx", entry.size)))
        if self._pieces + len(entries) <= MOST_SMALL and all(
            entry.size <= _SMALL for entry in entries
        ):
            self._small.append((key, entries))
            self._pieces += len(entries)

    def groups(self) -> tuple[CodeGroup, ...]:
        """Return the groups in file order; none if all objects are alike."""
        if len(self._groups) < 2:
            return ()
        for key, entries in self._small:
            if all(read_kernel_names(self._source, entry, 1)[1] for entry in entries):
                self._count(self._groups[key], entries, -1)
        left = [(key, group) for key, group in self._groups.items() if group.count > 0]
        if len(left) < 2:
            return ()
        left.sort(key=lambda pair: (pair[1].offset, pair[0]))
        names = [
            [read_kernel_names(self._source, piece, _READ_OF_OBJECT)[0] for piece in group.pieces]
            for _, group in left
        ]
        common = Counter(name for objects in names for of_object in objects for name in of_object)
        return tuple(
            CodeGroup(
                format=container,
                architectures=archs,
                count=group.count,
                size=group.size,
                offset=group.offset,
                kernels=_choose_distinctive_names(objects, common),
                is_relocatable=is_relocatable,
            )
            for ((container, archs, is_relocatable), group), objects in zip(
                left, names, strict=True
            )
        )

    @staticmethod
    def _count(group: _Group, entries: tuple[DeviceCode, ...], number: int) -> None:
        group.count += number
        group.size += number * sum(entry.size for entry in entries)


def _choose_distinctive_names(
    objects: Iterable[tuple[str, ...]], common: Counter[str]
) -> tuple[str, ...]:
    """Return the names of each object that the fewest other objects have."""
    names = (
        name
        for kernels_of_object in objects
        for name in sorted(kernels_of_object, key=common.__getitem__)[:_NAMES_OF_OBJECT]
    )
    return tuple(dict.fromkeys(names))
