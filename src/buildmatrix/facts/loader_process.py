"""A process as ld.so builds it: objects, search paths, default folders and preloaded libraries."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.facts.inventory.listing import LinkedPaths
from buildmatrix.facts.inventory.model import Binary, PythonLoad

# Objects and search paths


_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
_MUSL_TOKEN = re.compile(r"\$ORIGIN|\$\{ORIGIN\}")


@dataclass(frozen=True, slots=True)
class Abi:
    """Properties that all objects of one process share."""

    machine: str
    bits: int
    little_endian: bool


@dataclass(frozen=True, slots=True)
class SystemFolders:
    """Configuration of a tree's C library for one ABI."""

    #: The default folders, in order.
    folders: tuple[str, ...]
    #: Value of $LIB.
    lib: str
    #: Path of musl's loader, if the tree uses musl.
    musl: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """One object of a process, its search paths without tokens and relative folders."""

    binary: Binary
    #: Folder of the place that it was found at, which $ORIGIN stands for; links are not followed.
    origin: str
    #: DT_RPATH, empty beside DT_RUNPATH, for which ld.so drops it.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: The nearest object with a DT_RPATH on the way from this one's loader up to the program.
    heir_of: Loaded | None
    #: Path of the object that needed it first; None for what the process began with.
    asked_by: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A program, or an object that comes by dlopen, with all that it loads."""

    abi: Abi
    system: SystemFolders
    #: LD_LIBRARY_PATH, its tokens replaced.
    environment: tuple[str, ...]
    #: In the order of loading, which is breadth first.
    objects: list[Loaded]
    #: Requested name, soname or path of the file → the object that answers to it.
    loaded: dict[str, Loaded]


def expand(entries: Sequence[str], origin: str, system: SystemFolders, abi: Abi) -> tuple[str, ...]:
    """The absolute ones of `entries`, their tokens replaced (ld.so(8))."""
    values = {"ORIGIN": origin, "LIB": system.lib, "PLATFORM": abi.machine}
    expanded = (
        _TOKEN.sub(lambda match: values[match[1] or match[2]], entry) if "$" in entry else entry
        for entry in entries
    )
    return tuple(folder for folder in expanded if folder.startswith("/"))


def expand_musl(entries: Sequence[str], origin: str) -> tuple[str, ...]:
    """Expand search paths as musl does: only $ORIGIN, and no path with other tokens.

    It does not look where the name ends: `$ORIGINAL` is the origin with `AL` behind it.
    """
    if any("$" in _MUSL_TOKEN.sub("", entry) for entry in entries):
        return ()
    expanded = [_MUSL_TOKEN.sub(origin.replace("\\", r"\\"), entry) for entry in entries]
    return tuple(folder for folder in expanded if folder.startswith("/"))


def abi_of(binary: Binary) -> Abi:
    """The ABI of a binary."""
    return Abi(binary.elf.machine, binary.elf.bits, binary.elf.little_endian)


def is_program(binary: Binary) -> bool:
    """Return True if a process can start with this binary."""
    return binary.elf.interpreter is not None or binary.elf.type == "exec"


def folder_of(path: str) -> str:
    """The folder that holds `path`; empty for a file at the top."""
    return path.rpartition("/")[0]


def file_name(path: str) -> str:
    """The last part of `path`."""
    return path.rpartition("/")[2]


# Names of libraries


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

    def paths_named(self, name: str) -> Collection[str]:
        """Return paths of the binaries with this file name or soname."""
        return self._by_name.get(name, ())

    def paths_with_abi(self, name: str, abi: Abi) -> tuple[str, ...]:
        """Return paths of the binaries of the ABI with the last part of `name`, sorted."""
        key = (file_name(name), abi)
        if key not in self._of_abi:
            paths = self.paths_named(key[0])
            self._of_abi[key] = tuple(
                sorted(path for path in paths if abi_of(self._binaries[path]) == abi)
            )
        return self._of_abi[key]


# Preloads by Python files


class Preloads:
    """Libraries that packages load by their paths before an extension module needs them."""

    def __init__(self, loads: Iterable[PythonLoad]) -> None:
        self._patterns: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        for load in loads:
            if not load.owner or load.call not in ("CDLL", "LoadLibrary"):
                continue
            patterns = self._patterns.setdefault(load.owner, [])
            for name in load.names:
                # `*.so` is any library; `lib*.so.*[0-9]` is no name either.
                if re.search(r"\w{3}", file_name(name).removeprefix("lib").partition(".so")[0]):
                    pattern = re.compile(fnmatch.translate("*/" + name.lstrip("*/")))
                    patterns.append((pattern, f"{load.path}:{load.line}"))

    def place(self, owner: str | None, paths: Iterable[str]) -> str | None:
        """Return the place at which `owner` loads one of `paths`, or None."""
        patterns = self._patterns.get(owner or "", ())
        places = (
            place for path in paths for pattern, place in patterns if pattern.match(f"/{path}")
        )
        return next(places, None)


# Layout of the C library


#: Debian's name of a machine in library folders (multiarch tuples).
_MULTIARCH = {
    "x86_64": "x86_64-linux-gnu",
    "386": "i386-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "ppc64": "powerpc64le-linux-gnu",
    "riscv": "riscv64-linux-gnu",
    "s390": "s390x-linux-gnu",
}
_LIBC = "libc.so.6"
_MUSL = "ld-musl-"
_MUSL_DEFAULT = ("/lib", "/usr/local/lib", "/usr/lib")


class SystemLayouts:
    """The layout of a tree's C library for each ABI; `musl_folders` as in `Inventory`."""

    def __init__(
        self, names: LibraryNames, paths: LinkedPaths, musl_folders: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._names = names
        self._paths = paths
        self._musl_folders = musl_folders
        self._layouts: dict[Abi, SystemFolders] = {}
        #: Whether the tree holds a C library.
        self.is_root = any(name == _LIBC or name.startswith(_MUSL) for name in names)

    def layout_of(self, abi: Abi, interpreter: str | None) -> SystemFolders:
        """Return the layout of the tree's C library, whose folder is one of the default folders."""
        if abi not in self._layouts:
            self._layouts[abi] = self._find(abi)
        layout = self._layouts[abi]
        if interpreter is None or (layout.musl is not None) == (_MUSL in interpreter):
            return layout
        if _MUSL in interpreter:
            return self._musl_layout(self._paths.file(interpreter) or interpreter.lstrip("/"))
        return layout

    def _musl_layout(self, loader: str) -> SystemFolders:
        architecture = file_name(loader).removeprefix(_MUSL).partition(".")[0]
        folders = self._musl_folders.get(architecture, _MUSL_DEFAULT)
        return SystemFolders(folders, "lib", loader)

    def _find(self, abi: Abi) -> SystemFolders:
        libraries = self._names.paths_with_abi(_LIBC, abi)
        if not libraries:
            for name in sorted(self._names):
                if name.startswith(_MUSL) and self._names.paths_with_abi(name, abi):
                    return self._musl_layout(self._names.paths_with_abi(name, abi)[0])
        multiarch = f"lib/{_MULTIARCH.get(abi.machine, abi.machine + '-linux-gnu')}"
        wide = "lib64" if abi.bits == 64 else "lib32"
        layouts = (
            SystemFolders((f"/{multiarch}", f"/usr/{multiarch}", "/lib", "/usr/lib"), multiarch),
            SystemFolders((f"/{wide}", f"/usr/{wide}"), wide),
            SystemFolders(("/lib", "/usr/lib"), "lib"),
        )
        home = {folder_of(path) for path in libraries}
        for layout in layouts:
            # Debian's multiarch folders come first in its list and are decisive.
            if home & {self._paths.folder(folder) for folder in layout.folders[:2]}:
                return layout
        everything = dict.fromkeys(folder for layout in layouts for folder in layout.folders)
        return SystemFolders(tuple(everything), "lib")
