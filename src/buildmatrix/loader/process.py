"""A process as ld.so builds it: its objects, and the search paths that they bring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from buildmatrix.inventory.model import Binary

_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
_MUSL_TOKEN = re.compile(r"\$ORIGIN|\$\{ORIGIN\}")


@dataclass(frozen=True, slots=True)
class Abi:
    """What all objects of one process have in common."""

    machine: str
    bits: int
    little_endian: bool


@dataclass(frozen=True, slots=True)
class SystemFolders:
    """How the C library of a tree was configured for one ABI."""

    #: The default folders, in order.
    folders: tuple[str, ...]
    #: What $LIB stands for.
    lib: str
    #: Path of musl's loader, where that is the one.
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
    """As `expand`, for musl: it knows $ORIGIN only, and drops a path with other tokens.

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
    """Whether a process begins with it."""
    return binary.elf.interpreter is not None or binary.elf.type == "exec"


def folder_of(path: str) -> str:
    """The folder that holds `path`; empty for a file at the top."""
    return path.rpartition("/")[0]


def file_name(path: str) -> str:
    """The last part of `path`."""
    return path.rpartition("/")[2]
