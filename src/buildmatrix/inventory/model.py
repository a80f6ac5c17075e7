"""All facts of a tree. Immutable, and stored under the digest of the bytes it was read from.

Paths are relative to the tree's root, with `/` separators and no leading slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.elf.model import Elf

#: Raised with every change of what an inventory says: older stored ones are then read again.
SCHEMA = "buildmatrix/inventory/1"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution, from its `.dist-info` (or `.egg-info`) folder.

    Core metadata specification 2.x; PEP 376 (RECORD, INSTALLER, REQUESTED); PEP 610 (direct_url).
    """

    #: Normalised name (PEP 503).
    name: str
    version: str
    #: Path of the metadata folder.
    path: str
    #: `Requires-Dist` lines as written.
    requires: tuple[str, ...] = ()
    installer: str | None = None
    requested: bool = False
    #: URL of direct_url.json, without credentials.
    direct_url: str | None = None
    #: Files that RECORD lists and that exist, and their bytes on disk.
    files: int = 0
    size: int = 0
    has_record: bool = True


@dataclass(frozen=True, slots=True)
class Binary:
    """One ELF file of the tree."""

    path: str
    size: int
    elf: Elf
    #: `name==version` of the distribution whose RECORD lists it, if any.
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that is no host ELF but matters to an accelerator: bitcode, PTX, archives, ..."""

    path: str
    size: int
    #: Lower-case suffix, no dot: `bc`, `ptx`, `cubin`, `fatbin`, `hsaco`, `spv`, `kpack` ...
    kind: str
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A further name of a library: what the loader model needs beside the binaries.

    Symbolic links named like a shared library, and those that lead to a folder with libraries below
    it (`lib` → `usr/lib`). `target` as stored; a leading `/` means the tree's root.
    """

    path: str
    target: str
    #: No symbolic link but a hard one: the same file as `target`, which is listed.
    hard: bool = False


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """One package of the system's package manager (dpkg status, apk installed)."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class SharedPath:
    """A path that the RECORD of more than one distribution lists."""

    path: str
    #: `name==version`, sorted.
    owners: tuple[str, ...]
    #: Owners whose RECORD hash is the hash of the bytes on disk; None where it was not checked.
    matches: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that exists and could not be read, with the reason in one sentence."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Stats:
    """What the scan cost."""

    files: int = 0
    binaries: int = 0
    bytes_total: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Inventory:
    """All facts of one tree."""

    schema: str = SCHEMA
    distributions: tuple[Distribution, ...] = ()
    binaries: tuple[Binary, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    links: tuple[Link, ...] = ()
    system_packages: tuple[SystemPackage, ...] = ()
    shared_paths: tuple[SharedPath, ...] = ()
    #: Folders named in ld.so.conf and its includes, in order.
    library_folders: tuple[str, ...] = ()
    #: Environment of the image's configuration; empty for other trees.
    environment: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[Unread, ...] = ()
    stats: Stats = field(default_factory=Stats)
