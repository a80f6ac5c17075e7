"""Groups the objects of one file by their target architectures.

A compiler makes one container per translation unit, with code for all requested architectures. If
one unit was compiled for fewer than the others, the file as a whole supports an architecture that
some of its kernels do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from buildmatrix.device_code.entries import CodeContainer, CodeEntry
from buildmatrix.device_code.kernels import read_kernel_names
from buildmatrix.device_code.model import CodeGroup
from buildmatrix.elf.regions import DEVICE_SECTIONS
from buildmatrix.elf.source import ByteSource

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
    pieces: list[CodeEntry] = field(default_factory=list)


class Groups:
    """Groups of the objects of one file."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._groups: dict[_Key, _Group] = {}
        self._small: list[tuple[_Key, tuple[CodeEntry, ...]]] = []
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
    def _count(group: _Group, entries: tuple[CodeEntry, ...], number: int) -> None:
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
