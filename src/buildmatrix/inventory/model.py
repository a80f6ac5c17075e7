"""All facts of a tree. Immutable, and stored under the digest of the bytes it was read from.

Paths are relative to the tree's root, with `/` separators and no leading slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.binaries.model import Elf
from buildmatrix.device_code.model import DeviceCode
from buildmatrix.elf.model import Mark
from buildmatrix.python_imports.reach import Reach

#: Raised with every change of what an inventory says: older stored ones are then read again.
SCHEMA = "buildmatrix/inventory/14"

#: Kinds of containers that are packages: they count even where nothing in them does.
PACKAGES = frozenset({"wheel", "conda", "deb", "rpm"})


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One line of entry_points.txt (entry points specification): what others load by its group."""

    group: str
    name: str
    #: `package.module:attribute`
    value: str


@dataclass(frozen=True, slots=True)
class Variant:
    """What a distribution says that it was built for beyond its platform (PEP 825, a draft)."""

    #: `null` for the one without properties.
    label: str
    #: `nvidia :: sm_arch :: 90_real`, sorted.
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution: a `.dist-info` (or `.egg-info`) folder, or a conda package.

    Core metadata specification 2.x; PEP 376 (RECORD, INSTALLER, REQUESTED); PEP 610 (direct_url).
    """

    #: Normalised name (PEP 503).
    name: str
    version: str
    #: Path of the metadata folder, or of the conda package's record.
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
    entry_points: tuple[EntryPoint, ...] = ()
    #: Package URLs of what was built into it, from the SBOMs in its metadata folder (PEP 770).
    components: tuple[str, ...] = ()
    #: `License-Expression` (PEP 639), the header `License` of before as far as it is one line's
    #: worth of text, and the classifiers that begin with `License ::`.
    license_expression: str = ""
    license: str = ""
    license_classifiers: tuple[str, ...] = ()
    #: sha256 in hex of the hashes that RECORD has for its modules; None where it has none. Two
    #: copies that differ in it hold other files.
    record: str | None = None
    #: None for all that are no variant wheels.
    variant: Variant | None = None

    @property
    def owner(self) -> str:
        """How `Binary.owner` and its like name it."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class Binary:
    """One ELF file of the tree."""

    path: str
    size: int
    elf: Elf
    #: `name==version` of the distribution whose RECORD lists it, if any.
    owner: str | None = None
    #: How the Python files of its distribution get to it by its name. What it links is reached as
    #: far as it is itself.
    reach: Reach = "unknown"
    #: `path:line` of the statement that loads it, or that chooses, where `reach` says that there is
    #: one.
    reached_from: str | None = None
    #: Bytes that it takes in its wheel or container; None where it was not read from one.
    packed: int | None = None
    #: Path of the container that it lies in, which no loader looks into; see `Container`.
    container: str | None = None


@dataclass(frozen=True, slots=True)
class PythonLoad:
    """A call in a Python file that loads a library, or asks where it is, by a name."""

    path: str
    line: int
    #: `CDLL`, `PyDLL`, `LoadLibrary`, `dlopen`, `load_library`, `load_op_library`, `find_library`,
    #: `load_nvidia_dynamic_lib`; `register_fake` and `impl_abstract` load nothing, but fail where
    #: no library has registered the operator of torch that they name.
    call: str
    #: Names or paths, with `*` for what only a run would show and a leading `/` for the tree's
    #: root; `name::operator` for operators; empty when the name is computed.
    names: tuple[str, ...] = ()
    #: Whether an import of the distribution gets there, and survives the failure.
    reach: Reach = "lazy"
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class PythonImport:
    """That Python code of one distribution imports a module of another one; once for each `how`."""

    path: str
    line: int
    #: Dotted name, as the statement has it: `cuda.bindings.runtime`.
    module: str
    #: `imported`: an import of the distribution runs the statement, and nothing catches its
    #: failure; `called`: it also calls a function of the module, and nothing catches that;
    #: `tried`: the statement stands in a `try` at the level of its module.
    how: Literal["imported", "called", "tried"]
    #: `name==version` of the distribution that imports.
    owner: str
    #: `name==version` of the distribution that has the module; None where the tree has none.
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A Python file that was of interest and could not be read whole.

    Distributions ship templates, and files for Python 2 that nothing imports: it is a fact, and no
    failure of the scan. What an import of the distribution runs is in `Inventory.unread` as well.
    """

    path: str
    why: str
    #: `name==version` of the distribution that has it.
    owner: str | None = None
    #: How far an import of the distribution gets to it; `unknown` for a distribution that has too
    #: much source to be followed.
    reach: Reach = "lazy"


@dataclass(frozen=True, slots=True)
class Statements:
    """What a Python file that is named after its version or its build says of it, as literals."""

    path: str
    #: Name → its texts; `cuda_version` → `("12.5.1",)`.
    values: Mapping[str, tuple[str, ...]]
    #: `name==version` of the distribution that has it.
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that is no host ELF but matters to an accelerator: bitcode, PTX, archives, ..."""

    path: str
    size: int
    #: Lower-case suffix, no dot: `bc`, `ptx`, `cubin`, `fatbin`, `hsaco`, `spv`, `kpack`,
    #: `engine`, `timing`, `mxr`, `blob`, `neff`, `om`, `vkcache` ...
    kind: str
    owner: str | None = None
    #: What it holds; nothing for code of the host (bitcode, archives).
    device_code: tuple[DeviceCode, ...] = ()
    #: Of the members of a static archive.
    marks: tuple[Mark, ...] = ()
    #: See `Binary`.
    packed: int | None = None
    container: str | None = None
    #: Of the library that compiled a network, as its header says: `10.3.0.26`.
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """An archive, a package, or a program with an archive behind it, that may hold binaries.

    Those that it holds are in `Inventory.binaries` and `artefacts` with the path
    `CONTAINER!/NAME`. Only containers that are packages, hold such files, or stayed closed.
    """

    path: str
    size: int
    #: `zip`, `wheel`, `conda`, `deb`, `rpm`, `tar`, `cpio`, `compressed`, `lz4`, `script`,
    #: `pyinstaller`, and those that are not opened: see `trees.containers.Format`.
    kind: str
    #: `name==version` of the distribution whose RECORD lists it, if any.
    owner: str | None = None
    #: Files in it.
    files: int = 0
    #: Why it was not opened, or not all of it, in one sentence.
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """What lies below one folder, and nowhere else: a file with another name outside is not."""

    path: str
    files: int
    #: Bytes.
    size: int


@dataclass(frozen=True, slots=True)
class Link:
    """A further name of a library or device file: what the loader model needs beside the binaries.

    Symbolic links named like a shared library, and those that lead to a folder with libraries below
    it (`lib` → `usr/lib`); hard links. `target` as stored; a leading `/` means the tree's root.
    """

    path: str
    target: str
    #: No symbolic link but a hard one: the same file as `target`, which is listed.
    hard: bool = False


@dataclass(frozen=True, slots=True)
class PythonPath:
    """Where one interpreter of the tree finds distributions."""

    #: Path of the interpreter; of a virtual environment, its `bin/python`.
    interpreter: str
    #: `3.12`
    version: str
    #: Site folders of sys.path, in order, with what `.pth` files add.
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedLibrary:
    """One entry of ld.so.cache."""

    name: str
    #: Absolute path in the tree.
    path: str
    #: What kind of library it is, as in glibc's sysdeps/generic/ldconfig.h.
    flags: int
    #: The glibc-hwcaps folder that it lies in (`x86-64-v3`), if any.
    hwcaps: str | None = None


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
class Layer:
    """One layer of an image, the lowest first."""

    #: Digest of the uncompressed layer (`sha256:...`), as the image's configuration has it.
    digest: str
    #: What made it, from the image's history; empty where the image does not say.
    instruction: str
    #: Bytes of its files.
    size: int
    #: Bytes of those of its files that a later layer deleted or replaced: they still ship.
    hidden: int = 0
    #: Whether it is known to come with the base image, and not from a step of our own.
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class Buried:
    """Files of one folder that a layer brought and a later one deleted or replaced."""

    #: Folder, with what the files have in common: `usr/lib/python3/site-packages/nvidia/cublas`.
    path: str
    files: int
    size: int
    #: Indexes into `Inventory.layers`: where the files came, and where they went.
    layer: int
    by: int
    #: Whether a later layer put other bytes there; else they are gone.
    replaced: bool = False
    #: Names of its libraries and tools, the largest first; at most a dozen.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A file that could matter and that a shallow reading left closed: see `Inventory.closed`."""

    path: str
    size: int
    owner: str | None = None
    #: What says that it could matter: its name; its first bytes, whatever its name; or nothing but
    #: its size, and its name is that of something harmless.
    by: Literal["name", "bytes", "size"] = "name"
    #: Whether it is a Python file that no import of its distribution runs.
    lazy: bool = False


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
    containers: tuple[Container, ...] = ()
    #: The largest folders, by path; none of a tree that is a wheel.
    folders: tuple[Folder, ...] = ()
    python_loads: tuple[PythonLoad, ...] = ()
    python_imports: tuple[PythonImport, ...] = ()
    unparsed: tuple[Unparsed, ...] = ()
    #: Of distributions, by path.
    statements: tuple[Statements, ...] = ()
    python_paths: tuple[PythonPath, ...] = ()
    links: tuple[Link, ...] = ()
    system_packages: tuple[SystemPackage, ...] = ()
    #: Path of a binary, artefact, metadata folder, or Python file that loads a library →
    #: `name version` of the system's package that installed it.
    packaged: Mapping[str, str] = field(default_factory=dict)
    shared_paths: tuple[SharedPath, ...] = ()
    #: Folders named in ld.so.conf and its includes, in order.
    library_folders: tuple[str, ...] = ()
    #: Entries of ld.so.cache in its order; None where the tree has none.
    loader_cache: tuple[CachedLibrary, ...] | None = None
    #: What ld.so.preload names, in order.
    preload: tuple[str, ...] = ()
    #: Architecture in musl's spelling → folders of its /etc/ld-musl-<architecture>.path, in order.
    musl_folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Environment of the image's configuration; empty for other trees.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Labels of the image's configuration.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Layers of an image, the lowest first; empty where they were not asked for.
    layers: tuple[Layer, ...] = ()
    #: Path of a binary, artefact, link, metadata folder, or Python file that loads a library →
    #: index of the layer that brought it.
    origins: Mapping[str, int] = field(default_factory=dict)
    #: What layers hold and containers do not see, the largest first.
    buried: tuple[Buried, ...] = ()
    #: Files that a shallow reading left closed: only names and sizes are known. Sorted by path.
    closed: tuple[ClosedFile, ...] = ()
    unread: tuple[Unread, ...] = ()
    stats: Stats = field(default_factory=Stats)

    @property
    def loadable(self) -> tuple[Binary, ...]:
        """The binaries that lie in the tree itself: no loader looks into a container."""
        return tuple(binary for binary in self.binaries if binary.container is None)
