"""Resolution of NEEDED entries in a root file system, as by ld.so of glibc or musl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar

from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.listing import LinkedPaths
from buildmatrix.facts.inventory.model import Binary, CachedLibrary, Inventory, Unread
from buildmatrix.facts.loader_process import (
    Abi,
    LibraryNames,
    Loaded,
    Preloads,
    Process,
    SystemLayouts,
    abi_of,
    expand,
    expand_musl,
    folder_of,
    is_program,
)

# Results


_Key = TypeVar("_Key")
Rule = Literal[
    "loaded", "path", "rpath", "inherited-rpath", "environment", "runpath", "cache", "default"
]


@dataclass(frozen=True, slots=True)
class Needed:
    """Resolution of one NEEDED entry of one binary."""

    #: Path of the binary that needs it.
    binary: str
    #: The entry.
    name: str
    #: Path of the file that it leads to; None when no search path holds it.
    path: str | None
    rule: Rule | None = None
    #: Folders that were searched, in order, when it was not found.
    searched: tuple[str, ...] = ()
    #: Files of the tree that have this name or soname, when it was not found: a package may load
    #: one of them by its path (ctypes) before it is needed, as torch does.
    anywhere: tuple[str, ...] = ()
    #: `path:line` of a call in a Python file of the binary's distribution that names one of these.
    preloaded_from: str | None = None
    #: Path of the binary whose RPATH or RUNPATH led there; for `loaded` the one that needed it
    #: first.
    by: str | None = None
    #: The path at which it was found, before links were followed; a leading `/` is the tree's root.
    place: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that it may lead to: the one that was found, else those of the same name."""
        return (self.path,) if self.path is not None else self.anywhere


@dataclass(frozen=True, slots=True)
class Resolution:
    """Every NEEDED entry of a tree."""

    #: Sorted by binary, in the order of its entries.
    needed: tuple[Needed, ...]
    #: True if the tree has a C library. Without one it is not a root file system, and the system's
    #: libraries cannot be found in it.
    is_root: bool
    #: Binaries that were not traced, with the reason.
    unread: tuple[Unread, ...] = ()
    #: Libraries that LD_PRELOAD and ld.so.preload add to programs: `binary` is the first such
    #: program.
    preloaded: tuple[Needed, ...] = ()

    @property
    def missing(self) -> tuple[Needed, ...]:
        """Entries whose name exists nowhere in the tree."""
        return tuple(needed for needed in self.needed if not needed.paths)

    def links(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the path of a binary → NEEDED entry → files that it may lead to."""
        links: dict[str, dict[str, tuple[str, ...]]] = {}
        for item in self.needed:
            links.setdefault(item.binary, {})[item.name] = item.paths
        return links


# The search
#
# The order is that of ld.so(8) and of `_dl_map_object` in glibc's elf/dl-load.c:
#
# 1. an object of the process that has the name already, by the requested name or its soname; 2.
# DT_RPATH of the requesting object, then of the one that loaded that, and so on up, and of the
# executable; all of it only when the requesting object has no DT_RUNPATH; 3. LD_LIBRARY_PATH of the
# image's environment; 4. DT_RUNPATH of the requesting object, and of no other; 5. ld.so.cache.
# Where a tree has none that can be read, the folders that ldconfig makes it from stand in: those of
# ld.so.conf, then the default folders; they answer to sonames, not file names; 6. the default
# folders. With DF_1_NODEFLIB in the requesting object, no default folder counts.
#
# A tree without a C library is no root file system: its default folders are those of a system that
# is not there. The `lib` of a virtual environment or of another prefix does not count.
#
# In each folder its glibc-hwcaps folders come first. Libraries of LD_PRELOAD and of ld.so.preload
# join a program before those that it needs. A name with a slash is a path. Objects of another
# machine, class or byte order are passed over. Not modelled: set-user-ID programs, and relative
# folders (they depend on where a process stands).
#
# musl's loader (ldso/dynlink.c), which a program names as its interpreter, has rules of its own:
# the names of the C library's parts are the loader itself; a library is known by the requested
# name, never by its soname; LD_LIBRARY_PATH comes before the folders of DT_RUNPATH or DT_RPATH,
# which are one and inherited; then those of /etc/ld-musl-<architecture>.path; the first file of
# that name counts, whatever it is. It has no cache, no glibc-hwcaps and no ld.so.preload.
#
# What no program of the tree needs, such as a Python extension module, comes by dlopen from an
# unknown caller, so it is traced alone, and no RPATH but its own and its libraries' is inherited.


#: Machine → glibc-hwcaps folders that its processors use, best first: what servers since 2015 have.
HWCAPS: Mapping[str, tuple[str, ...]] = {"x86_64": ("x86-64-v3", "x86-64-v2")}

DF_1_NODEFLIB = 0x800
#: Folders that all traces together may look into: some seconds.
MOST_LOOKUPS = 10_000_000

#: Rules that lead to folders of the system.
_SYSTEMS: tuple[Rule, ...] = ("cache", "default")
#: Kind of library in ld.so.cache (glibc's sysdeps/generic/ldconfig.h), for machines with several.
_CACHE_FLAGS = {("x86_64", 64): 0x0303, ("386", 32): 0x0003, ("aarch64", 64): 0x0A03}
_HWCAPS_FOLDER = "/glibc-hwcaps/"
#: `reserved` of musl's load_library.
_MUSL_OWN = re.compile(r"lib(?:c|pthread|rt|m|dl|util|xnet)\.")


def resolve(
    inventory: Inventory, hwcaps: Mapping[str, tuple[str, ...]] = MappingProxyType(HWCAPS)
) -> Resolution:
    """Resolve the NEEDED entries of all binaries of `inventory`.

    An entry that several processes resolve differently counts as found where one of them finds it.
    `hwcaps` is what the processors can do, as in `HWCAPS`.
    """
    return Resolver(inventory, hwcaps).resolve()


def resolve_opened(
    inventory: Inventory,
    opened: Iterable[tuple[Binary | None, str]],
    hwcaps: Mapping[str, tuple[str, ...]] = MappingProxyType(HWCAPS),
) -> tuple[Needed, ...]:
    """Resolve names that binaries open by themselves: dlopen searches as for NEEDED entries.

    What the binary links is loaded by then, and answers first. None stands for a caller without
    search paths of its own, as Python's ctypes is; `Needed.binary` is empty then.
    """
    resolver = Resolver(inventory, hwcaps)
    return tuple(resolver.resolve_opened(binary, name) for binary, name in opened)


class Resolver:
    """Traces the processes of one tree."""

    def __init__(self, inventory: Inventory, hwcaps: Mapping[str, tuple[str, ...]]) -> None:
        preload = re.split("[ :]", inventory.environment.get("LD_PRELOAD", ""))
        self._preload = tuple(filter(None, preload))
        self._preload_file = inventory.preload
        self._preloads = Preloads(inventory.python_loads)
        self._preloaded: dict[str, Needed] = {}
        self._cache: dict[str, list[CachedLibrary]] | None = None
        if inventory.loader_cache is not None:
            self._cache = {}
            for entry in inventory.loader_cache:
                self._cache.setdefault(entry.name, []).append(entry)
        self._binaries = {
            binary.path: binary
            for binary in inventory.loadable
            if binary.elf.type in ("exec", "dyn")
        }
        links = {link.path: link.target for link in inventory.links}
        # Most trees have none of these folders, and need not be searched for them.
        named = any("glibc-hwcaps" in name for name in (*self._binaries, *links, *links.values()))
        self._hwcaps = hwcaps if named else {}
        self._paths = LinkedPaths(self._binaries, links)
        self._configured = tuple(f"/{folder}" for folder in inventory.library_folders)
        path = inventory.environment.get("LD_LIBRARY_PATH", "")
        self._environment = tuple(filter(None, re.split("[:;]", path)))
        self._names = LibraryNames(self._binaries, links, self._paths)
        self._systems = SystemLayouts(self._names, self._paths, inventory.musl_folders)
        self._is_root = self._systems.is_root
        self._has_system = self._is_root or bool(self._cache or self._configured)
        self._answers: dict[tuple[str, str], Needed] = {}
        self._lookups = 0

    def resolve(self) -> Resolution:
        """Trace all of them."""
        reached: set[str] = set()
        for path in self._starts():
            if path not in reached or is_program(self._binaries[path]):
                process = self._trace(self._binaries[path])
                reached.update(loaded.binary.path for loaded in process.objects)
        needed, cut = [], set()
        for path, binary in sorted(self._binaries.items()):
            for name in dict.fromkeys(binary.elf.needed):
                answer = self._answers.get((path, name))
                if answer is not None:
                    needed.append(answer)
                else:
                    cut.add(path)
        return Resolution(
            needed=tuple(needed),
            preloaded=tuple(self._preloaded.values()),
            is_root=self._is_root,
            unread=tuple(
                Unread(
                    path,
                    "its NEEDED entries were not followed: those of all binaries together"
                    f" take more than {MOST_LOOKUPS} lookups",
                )
                for path in sorted(cut)
            ),
        )

    def resolve_opened(self, binary: Binary | None, name: str) -> Needed:
        """Resolve a name that a binary opens; see `resolve_opened`."""
        if binary is None:
            abis = [abi_of(self._binaries[path]) for path in sorted(self._names.paths_named(name))]
            abi = max(abis, key=lambda abi: abi.bits, default=Abi("x86_64", 64, True))
            binary = Binary("", 0, Elf(abi.bits, abi.little_endian, abi.machine, "dyn"))
        process = self._trace(binary)
        return self._load(process, process.objects[0], name)

    def _starts(self) -> list[str]:
        """Return all binaries: programs, then those that no binary needs, then the rest.

        A library is judged in the processes that load it, where it may inherit search paths. Only
        what no process before it has loaded is traced alone.
        """
        names = {name for binary in self._binaries.values() for name in binary.elf.needed}
        asked_for = {path for name in names for path in self._names.paths_named(name)}
        return sorted(
            self._binaries,
            key=lambda path: (not is_program(self._binaries[path]), path in asked_for, path),
        )

    def _trace(self, binary: Binary) -> Process:
        """Load `binary` and all that it needs as ld.so does."""
        abi = abi_of(binary)
        system = self._systems.layout_of(abi, binary.elf.interpreter)
        environment = expand(self._environment, f"/{folder_of(binary.path)}", system, abi)
        process = Process(abi, system, environment, [], {})
        program = self._join(process, binary, f"/{binary.path}", None)
        if binary.elf.interpreter is not None:
            for name in (*self._preload, *(() if system.musl else self._preload_file)):
                answer = self._load(process, program, name)
                _keep_found(self._preloaded, name, answer)
        for requester in process.objects:  # grows while it is walked
            for name in requester.binary.elf.needed:
                if self._lookups > MOST_LOOKUPS:
                    break
                answer = self._load(process, requester, name)
                _keep_found(self._answers, (requester.binary.path, name), answer)
        return process

    def _join(self, process: Process, binary: Binary, place: str, loader: Loaded | None) -> Loaded:
        """Add a file that was found at `place` to a process."""
        origin = folder_of(place) or "/"
        position = (origin, process.system, process.abi)
        elf = binary.elf
        if process.system.musl:
            rpath = expand_musl(elf.runpath or elf.rpath, origin)
        else:
            rpath = () if elf.runpath else expand(elf.rpath, *position)
        loaded = Loaded(
            binary,
            origin=origin,
            rpath=rpath,
            runpath=() if process.system.musl else expand(elf.runpath, *position),
            heir_of=loader if loader is None or loader.rpath else loader.heir_of,
            asked_by=None if loader is None else loader.binary.path,
        )
        self._lookups += len(elf.rpath) + len(elf.runpath)
        process.objects.append(loaded)
        process.loaded[binary.path] = loaded
        if elf.soname and not process.system.musl:
            process.loaded.setdefault(elf.soname, loaded)
        return loaded

    def _load(self, process: Process, requester: Loaded, name: str) -> Needed:
        """Resolve `name` for `asking`; a file that is new to the process joins it."""
        self._lookups += 1
        requester_path = requester.binary.path
        if name in process.loaded:
            loaded = process.loaded[name]
            return Needed(requester_path, name, loaded.binary.path, "loaded", by=loaded.asked_by)
        if process.system.musl and _MUSL_OWN.match(name):
            return Needed(requester_path, name, process.system.musl, "loaded")
        searched: dict[str, None] = {}
        for rule, owner, place in self._places(process, requester, name):
            self._lookups += 1
            path = self._paths.file(place) if self._has_system or rule not in _SYSTEMS else None
            if path is None or not self._fits(self._binaries[path], process.abi, name, rule):
                if _HWCAPS_FOLDER not in place:
                    searched[folder_of(place) or "/"] = None
                if path is not None and process.system.musl:
                    break
                continue
            joined = process.loaded.get(path) or self._join(
                process, self._binaries[path], place, requester
            )
            process.loaded[name] = joined
            by = None if owner is None else owner.binary.path
            return Needed(requester_path, name, path, rule, by=by, place=place)
        anywhere = self._names.paths_with_abi(name, process.abi)
        preload = self._preloads.place(requester.binary.owner, anywhere)
        return Needed(requester_path, name, None, None, tuple(searched), anywhere, preload)

    def _fits(self, binary: Binary, abi: Abi, name: str, rule: Rule) -> bool:
        if abi_of(binary) != abi:
            return False
        # ldconfig enters only what is named `lib*.so*` or `ld-*.so*`, and by its soname.
        return (
            rule != "cache"
            or self._cache is not None
            or (
                (name.startswith(("lib", "ld-")) and ".so" in name)
                and binary.elf.soname in (None, name)
            )
        )

    def _places(
        self, process: Process, requester: Loaded, name: str
    ) -> Iterator[tuple[Rule, Loaded | None, str]]:
        """Yield paths at which ld.so looks for `name`, in order, as `_searches` does folders."""
        if "/" in name:
            for path in expand((name,), requester.origin, process.system, process.abi):
                yield "path", None, path
            return
        levels = () if process.system.musl else self._hwcaps.get(process.abi.machine, ())
        for rule, owner, folders in self._searches(process, requester):
            if rule == "cache":
                for place in self._cached(process, requester, folders, name):
                    yield rule, owner, place
                continue
            for folder in folders:
                base = folder.rstrip("/")
                for level in levels:
                    yield rule, owner, f"{base}{_HWCAPS_FOLDER}{level}/{name}"
                yield rule, owner, f"{base}/{name}"

    def _cached(
        self, process: Process, requester: Loaded, folders: Sequence[str], name: str
    ) -> Iterator[str]:
        """The path that ld.so.cache has for `name`; `folders` stand in where there is no cache."""
        levels = self._hwcaps.get(process.abi.machine, ())
        if self._cache is None:
            for level in levels:
                for folder in folders:
                    # ldconfig makes no links in there: a soname leads to whatever file has it.
                    resolved = self._paths.folder(f"{folder}{_HWCAPS_FOLDER}{level}")
                    for path in sorted(self._names.paths_named(name)):
                        if folder_of(path) == resolved:
                            yield f"/{path}"
            yield from (f"{folder.rstrip('/')}/{name}" for folder in folders)
            return
        flags = _CACHE_FLAGS.get((process.abi.machine, process.abi.bits))
        order: tuple[str | None, ...] = (*levels, None)
        entries = [
            entry
            for entry in self._cache.get(name, ())
            if flags in (None, entry.flags) and entry.hwcaps in order
        ]
        if not entries:
            return
        # The best one is the answer, also when its file is gone.
        path = min(entries, key=lambda entry: order.index(entry.hwcaps)).path
        default = tuple(f"{folder}/" for folder in process.system.folders)
        if not (requester.binary.elf.flags_1 & DF_1_NODEFLIB and path.startswith(default)):
            yield path

    def _searches(
        self, process: Process, requester: Loaded
    ) -> Iterator[tuple[Rule, Loaded | None, Sequence[str]]]:
        """Yield folders in order, each group with its rule and the object that names them."""
        system, configured = process.system, self._configured
        if system.musl:
            yield "environment", None, process.environment
        if system.musl or not requester.binary.elf.runpath:
            yield "rpath", requester, requester.rpath
            above = requester.heir_of
            while above is not None:
                yield "inherited-rpath", above, above.rpath
                above = above.heir_of
        if not system.musl:
            yield "environment", None, process.environment
            yield "runpath", requester, requester.runpath
            if requester.binary.elf.flags_1 & DF_1_NODEFLIB:
                refused = {self._paths.folder(folder) for folder in system.folders}
                allowed = (name for name in configured if self._paths.folder(name) not in refused)
                yield "cache", None, tuple(allowed)
                return
            # ldconfig adds the default folders at the end. A tree without ld.so.conf has no cache.
            yield "cache", None, (*configured, *system.folders) if configured else ()
        yield "default", None, system.folders


def _keep_found(answers: dict[_Key, Needed], key: _Key, answer: Needed) -> None:
    """Store an answer; one that leads to a file stays."""
    known = answers.get(key)
    if known is None or (known.path is None and answer.path is not None):
        answers[key] = answer
