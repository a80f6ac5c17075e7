"""Symbols and versions that ld.so would not find for the libraries of Python distributions.

glibc checks versions first: each that an object needs of a library (DT_VERNEED) has to be among
those that the library defines, where it defines any. Then it looks each symbol up in the objects of
the process, breadth first, and goes by the version where the object has one.

CPython opens extension modules with RTLD_NOW, and ctypes its libraries: all symbols of what comes
with them are bound at once, functions included, as with LD_BIND_NOW. So no symbol but a weak one is
optional. Programs bind functions when they are called, and are left out.

What a process holds is known from below: an object, and all that it links. A symbol that is not
defined there may still come from what was loaded before, so one without a version is only missed
where no other library of the tree has it. Where an object of the process was not read, or is not
in the tree and could have the symbol, nothing is said. The C library and GCC's are in every
process: where the tree does not have them, only names of C++ outside of its own namespaces count.

Of wheels that were not read whole, some files are closed: nothing is said where one of them could
have the symbol, and `unread_libraries` names those that have to be read for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from buildmatrix.facts.elf.model import Elf, SymbolNeed
from buildmatrix.facts.elf.symbols import DefinedSymbols
from buildmatrix.facts.inventory.model import Binary, Inventory
from buildmatrix.facts.loader import Resolution
from buildmatrix.facts.loader_process import Preloads, abi_of, file_name, is_program

#: The C library and GCC's.
_SYSTEM = re.compile(
    r"(?:libc|libm|libdl|libpthread|librt|libutil|libresolv|libgcc_s|libstdc\+\+|ld-linux[-\w]*)"
    r"\.so\.\d+"
)
#: Mangled names (Itanium C++ ABI, 5.1) outside of the namespaces of C++ itself, whose libraries
#: cannot define them.
_FOREIGN_CXX = re.compile(r"_Z(?:T[VTIS]|GV)?(?:N[KVRO]*)?\d+(?!\d|std|__cxxabiv1|__gnu_|__cxx)")


@dataclass(frozen=True, slots=True)
class Unbound:
    """Symbols or a version that one object needs, and others lack."""

    #: Path of the object.
    binary: str
    #: Symbols, in the order of its table; empty where the version itself is missing.
    names: tuple[str, ...]
    #: Paths of the libraries that should have it.
    libraries: tuple[str, ...]
    #: The version that is needed; None for symbols without one.
    version: str | None = None


def find_unbound(inventory: Inventory, resolution: Resolution) -> tuple[Unbound, ...]:
    """Return symbols and versions that distributions' files and their libraries lack, by path."""
    return tuple(_Binder(inventory, resolution).find_unbound())


def unread_libraries(
    inventory: Inventory,
    resolution: Resolution,
    objects: Collection[str],
    libraries: Collection[str],
) -> tuple[str, ...]:
    """Return paths of files that must be read before `objects` can be checked.

    First those of `libraries`, which are SONAMEs, then all others of a process where one of those
    lacks a symbol.
    """
    binder = _Binder(inventory, resolution, libraries)
    for _ in binder.find_unbound(objects):
        pass
    return tuple(sorted(binder.unread))


class _Binder:
    def __init__(
        self, inventory: Inventory, resolution: Resolution, libraries: Collection[str] = ()
    ) -> None:
        self._resolution = resolution
        self._libraries = libraries
        self._binaries = {
            binary.path: binary for binary in inventory.loadable if binary.elf.type == "dyn"
        }
        self._preloads = Preloads(inventory.python_loads)
        self._closed = {file.path for file in inventory.closed}
        self._closed_names = {file_name(path) for path in self._closed}
        #: Files with versioned symbols that are needed, which were not read.
        self.unread: set[str] = set()
        self._links = resolution.links()
        self._exports: dict[str, frozenset[int]] = {}
        self._hash: Mapping[str, int] = {}

    def find_unbound(self, objects: Collection[str] | None = None) -> Iterator[Unbound]:
        """Check each object, or those at the paths `objects`."""
        checked = self._checked_objects()
        judged = sorted(path for path in checked if objects is None or path in objects)
        needs = chain.from_iterable(_needs(self._binaries[path].elf) for path in judged)
        defined = DefinedSymbols({name for need in needs for name in need.names})
        self._hash = defined.hashes
        for path, binary in self._binaries.items():
            if binary.elf.binding is not None:
                self._exports[path] = defined.among(binary.elf.binding.exports)
        for path in judged:
            yield from self._versions(path)
            yield from self._symbols(path)

    def _checked_objects(self) -> Iterable[str]:
        """Files of distributions, and what they link."""
        reached = {
            path: None
            for path, binary in self._binaries.items()
            if binary.owner is not None and not is_program(binary)
        }
        ahead = list(reached)
        for path in ahead:  # grows while it is walked
            for further in chain.from_iterable(self._links.get(path, {}).values()):
                if further in self._binaries and further not in reached:
                    reached[further] = None
                    ahead.append(further)
        return reached

    def _versions(self, path: str) -> Iterator[Unbound]:
        """Versions that the library at hand does not define."""
        for need in self._binaries[path].elf.version_needs:
            libraries = self._files_named(path, need.library)
            definitions = [library.elf.version_definitions for library in libraries]
            for version in need.versions:
                if (
                    version not in need.weak
                    and definitions
                    and all(defined and version not in defined for defined in definitions)
                    and not self._is_preloaded(need.library, libraries)
                ):
                    yield Unbound(path, (), tuple(item.path for item in libraries), version)

    def _symbols(self, path: str) -> Iterator[Unbound]:
        binary = self._binaries[path]
        needs = _needs(binary.elf)
        if not needs:
            return
        scope = self._scope(path)
        unread = {*scope.closed, *(item for item in scope.objects if item not in self._exports)}
        for need in needs:
            if need.library is not None and need.version is not None:
                yield from self._check_versioned(path, scope, unread, need)
            elif not unread and (missing := self._missing(need, scope.objects)):
                yield from self._check_unversioned(path, scope, missing)

    def _missing(self, need: SymbolNeed, objects: Iterable[str]) -> list[str]:
        """The symbols that none of `objects` defines, all of which were read."""
        defined = frozenset[int]().union(*(self._exports[item] for item in objects))
        return [name for name in need.names if self._hash[name] not in defined]

    def _check_versioned(
        self, path: str, scope: _Scope, unread: set[str], need: SymbolNeed
    ) -> Iterator[Unbound]:
        assert need.library is not None
        paths = self._links.get(path, {}).get(need.library, ())
        if own := unread & set(paths):
            if need.library in self._libraries:
                self.unread |= own
            return
        libraries = self._files_named(path, need.library)
        definitions = [item.elf.version_definitions for item in libraries]
        # A version that is missing altogether is reported as such.
        if (
            not libraries
            or any(defined and need.version not in defined for defined in definitions)
            or not self._missing(need, paths)
            or self._is_preloaded(need.library, libraries)
        ):
            return
        if unread:
            self.unread |= unread
        elif missing := self._missing(need, scope.objects):
            yield Unbound(
                path, tuple(missing), tuple(item.path for item in libraries), need.version
            )

    def _check_unversioned(
        self, path: str, scope: _Scope, missing: Sequence[str]
    ) -> Iterator[Unbound]:
        if self._closed or not all(map(_SYSTEM.fullmatch, scope.absent)):
            return
        abi = abi_of(self._binaries[path])
        if any(
            other not in self._exports and abi_of(binary) == abi
            for other, binary in self._binaries.items()
        ):
            return
        shadowed = {name for item in scope.objects for name in self._names(item)}
        others = [
            self._exports[other]
            for other in self._exports
            if other not in scope.objects and shadowed.isdisjoint(self._names(other))
        ]
        names = tuple(
            name
            for name in missing
            if ((self._resolution.is_root and not scope.absent) or _FOREIGN_CXX.match(name))
            and not any(self._hash[name] in exports for exports in others)
        )
        if names:
            linked = (
                item
                for name, paths in self._links.get(path, {}).items()
                for item in paths
                if item in self._binaries and not _SYSTEM.fullmatch(name)
            )
            yield Unbound(path, names, tuple(linked))

    def _names(self, path: str) -> set[str]:
        soname = self._binaries[path].elf.soname
        return {file_name(path), *((soname,) if soname else ())}

    def _files_named(self, path: str, library: str) -> list[Binary]:
        """The files that a NEEDED entry leads to; none where not all are known."""
        paths = self._links.get(path, {}).get(library, ())
        libraries = [self._binaries[item] for item in paths if item in self._binaries]
        return libraries if len(libraries) == len(paths) else []

    def _is_preloaded(self, name: str, bound: Sequence[Binary]) -> bool:
        """Return True if another file of that name may be loaded before.

        Python code does that by its path, and it is unknown for a file that was not read.
        """
        if name in self._closed_names:
            return True
        paths = {binary.path for binary in bound}
        others = [
            path for path in self._binaries if path not in paths and name in self._names(path)
        ]
        owners = {binary.owner for binary in self._binaries.values()}
        return any(self._preloads.place(owner, others) for owner in owners) if others else False

    def _scope(self, path: str) -> _Scope:
        """Return the objects that an object brings into its process."""
        objects = {path: None}
        absent = []
        closed: dict[str, None] = {}
        ahead = [path]
        for item in ahead:  # grows while it is walked
            for name, paths in self._links.get(item, {}).items():
                present = [further for further in paths if further in self._binaries]
                if not present or len(present) < len(paths):
                    absent.append(name)
                    closed.update((further, None) for further in paths if further in self._closed)
                for further in present:
                    if further not in objects:
                        objects[further] = None
                        ahead.append(further)
        return _Scope(objects, tuple(absent), tuple(closed))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Objects of a process by path, and NEEDED entries of them that lead nowhere."""

    objects: Mapping[str, None]
    absent: tuple[str, ...]
    #: Paths of objects that were not read.
    closed: tuple[str, ...]


def _needs(elf: Elf) -> tuple[SymbolNeed, ...]:
    return elf.binding.needs if elf.binding is not None else ()
