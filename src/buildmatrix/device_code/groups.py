"""Sorts the objects of one file by what they were compiled for.

A compiler makes one container of each translation unit, with code for all architectures that it was
asked for. Where one was asked for fewer than the others, the file as a whole has an architecture,
and some of its kernels do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.device_code.kernels import kernels
from buildmatrix.device_code.model import CodeGroup
from buildmatrix.elf.regions import DEVICE_SECTIONS
from buildmatrix.elf.source import ByteSource

#: Containers that have code for several architectures; others are for one each.
_JOINING = frozenset({"nv-fatbin", "hip-bundle", "hip-ccob", "offload-bundle"})
#: What `nvcc -rdc` leaves of the objects that were linked into another container.
_RELOCATABLE = "__nv_relfatbin"

#: Different sets of architectures in one file; the most in real files is seven.
MOST_GROUPS = 64
#: Objects of a group whose kernels are named, and names of each.
_NAMED = 4
_NAMES_OF_OBJECT = 2
#: Names that are read of each: templates bring the same kernels into many objects.
_READ_OF_OBJECT = 32
#: Files without a kernel, and steps of linking, give containers too; a piece of one has 300 bytes
#: to 2 KiB.
_SMALL = 4 << 10
#: Pieces of small containers that are looked into; in hostile files at 0.5 ms each.
MOST_SMALL = 1 << 12

_Key = tuple[str, tuple[str, ...], bool]


@dataclass(slots=True)
class _Group:
    """What was counted."""

    offset: int
    count: int = 0
    size: int = 0
    #: A piece of each of the first objects.
    pieces: list[CodeEntry] = field(default_factory=list)


class Groups:
    """The groups of one file."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._groups: dict[_Key, _Group] = {}
        self._small: list[tuple[_Key, tuple[CodeEntry, ...]]] = []
        self._pieces = 0

    def add(self, container: CodeContainer, section: str | None) -> None:
        """Counts one object, unless some of its code names no architecture.

        What lies in other data is loaded by the program itself, which can choose among objects that
        are for one architecture each.
        """
        entries = container.entries
        if not entries or entries[0].format not in _JOINING:
            return
        # What a program links itself runs nowhere as it is.
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
        if len(group.pieces) < _NAMED:
            group.pieces.append(min(entries, key=lambda entry: (entry.kind == "ptx", entry.size)))
        if self._pieces + len(entries) <= MOST_SMALL and all(
            entry.size <= _SMALL for entry in entries
        ):
            self._small.append((key, entries))
            self._pieces += len(entries)

    def groups(self) -> tuple[CodeGroup, ...]:
        """The groups, the first in the file first; none where all objects are alike."""
        if len(self._groups) < 2:
            return ()
        for key, entries in self._small:
            if all(kernels(self._source, entry, 1)[1] for entry in entries):
                self._count(self._groups[key], entries, -1)
        left = [(key, group) for key, group in self._groups.items() if group.count > 0]
        if len(left) < 2:
            return ()
        left.sort(key=lambda pair: (pair[1].offset, pair[0]))
        names = [
            [kernels(self._source, piece, _READ_OF_OBJECT)[0] for piece in group.pieces]
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
                kernels=_telling(objects, common),
                is_relocatable=is_relocatable,
            )
            for ((container, archs, is_relocatable), group), objects in zip(
                left, names, strict=True
            )
        )

    @staticmethod
    def _count(group: _Group, entries: tuple[CodeEntry, ...], number: int) -> None:
        group.count += number
        group.size += number * sum(entry.size for entry in entries)


def _telling(objects: Iterable[tuple[str, ...]], common: Counter[str]) -> tuple[str, ...]:
    """Of each object the names that the fewest others have."""
    names = (
        name
        for kernels_of_object in objects
        for name in sorted(kernels_of_object, key=common.__getitem__)[:_NAMES_OF_OBJECT]
    )
    return tuple(dict.fromkeys(names))
