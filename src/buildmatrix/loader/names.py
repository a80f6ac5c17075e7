"""Binaries by the names that a loader looks for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from buildmatrix.inventory.model import Binary
from buildmatrix.inventory.paths import LinkedPaths
from buildmatrix.loader.process import Abi, abi_of, file_name


class LibraryNames:
    """The names of `binaries`: those of files, of `links` to them, and sonames."""

    def __init__(
        self, binaries: Mapping[str, Binary], links: Mapping[str, str], paths: LinkedPaths
    ) -> None:
        self._binaries = binaries
        self._by_name: dict[str, set[str]] = {}
        self._of_abi: dict[tuple[str, Abi], tuple[str, ...]] = {}
        for path, binary in binaries.items():
            self._by_name.setdefault(file_name(path), set()).add(path)
            if binary.elf.soname:
                self._by_name.setdefault(binary.elf.soname, set()).add(path)
        for path in links:
            target = paths.file(path)
            if target is not None:
                self._by_name.setdefault(file_name(path), set()).add(target)

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter(self._by_name)

    def having(self, name: str) -> Collection[str]:
        """Paths of the binaries with this file name or soname."""
        return self._by_name.get(name, ())

    def of_abi(self, name: str, abi: Abi) -> tuple[str, ...]:
        """Paths of the binaries of the ABI with the last part of `name`, sorted."""
        key = (file_name(name), abi)
        if key not in self._of_abi:
            paths = self.having(key[0])
            self._of_abi[key] = tuple(
                sorted(path for path in paths if abi_of(self._binaries[path]) == abi)
            )
        return self._of_abi[key]
