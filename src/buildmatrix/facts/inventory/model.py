"""All facts of a tree, as immutable data and as JSON.

Inventories are stored under the digest of the bytes they come from. Paths are relative to the
tree's root, with `/` separators and no leading slash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal

from buildmatrix.facts.elf.model import DeviceCode, Elf, Mark
from buildmatrix.facts.python_imports import Reach

#: Incremented with every change of an inventory's contents, so that older stored ones are read
#: again.
SCHEMA = "buildmatrix/facts/inventory/16"

#: Containers that are packages: they count even without relevant files.
PACKAGES = frozenset({"wheel", "conda", "deb", "rpm"})


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One line of entry_points.txt (entry points specification), loaded by its group."""

    group: str
    name: str
    #: `package.module:attribute`
    value: str


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """A line of a project's manifest in the tree that names a package."""

    #: `srv/app/package.json:12`
    place: str
    #: `onnxruntime-node ^1.20.1`
    text: str


@dataclass(frozen=True, slots=True)
class Variant:
    """Build target of a distribution beyond its platform tags (PEP 825, a draft)."""

    #: `null` for the variant without properties.
    label: str
    #: `nvidia :: sm_arch :: 90_real`, sorted.
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution: metadata of Python, an egg, a package of conda or of npm.

    Core metadata specification 2.x; PEP 376 (RECORD, INSTALLER, REQUESTED); PEP 610 (direct_url).
    """

    #: Normalized name (PEP 503); `npm:NAME` for packages of npm.
    name: str
    version: str
    #: Path of the metadata folder, of an egg that is a file, of the conda package's record, or of
    #: the package.json.
    path: str
    #: `Requires-Dist` lines as written.
    requires: tuple[str, ...] = ()
    installer: str | None = None
    requested: bool = False
    #: URL of direct_url.json, without credentials.
    direct_url: str | None = None
    #: Number of existing files in RECORD, and their bytes on disk.
    files: int = 0
    size: int = 0
    has_record: bool = True
    entry_points: tuple[EntryPoint, ...] = ()
    #: Package URLs of components built into it, from the SBOMs in its metadata folder (PEP 770).
    components: tuple[str, ...] = ()
    #: `License-Expression` (PEP 639), the older header `License` up to one line of text, and the
    #: classifiers that begin with `License ::`.
    license_expression: str = ""
    license: str = ""
    license_classifiers: tuple[str, ...] = ()
    #: sha256 in hex of the hashes in RECORD for its modules; None without any. Two copies with
    #: different values have different files.
    record: str | None = None
    #: None for other than variant wheels.
    variant: Variant | None = None
    #: For npm packages: lines of manifests in the tree that require it.
    lines: tuple[RequirementLine, ...] = ()

    @property
    def owner(self) -> str:
        """Name in `Binary.owner` and similar fields."""
        return f"{self.name}=={self.version}"

    @property
    def site(self) -> str:
        """Folder of its modules, with a trailing slash or empty."""
        return self.path[: self.path.rfind("/") + 1]


@dataclass(frozen=True, slots=True)
class Binary:
    """One ELF file of the tree."""

    path: str
    size: int
    elf: Elf
    #: `name==version` of the distribution whose RECORD lists it, if any.
    owner: str | None = None
    #: How the Python files of its distribution reach it by its name. Libraries that it links have
    #: the same reach as itself.
    reach: Reach = "unknown"
    #: `path:line` of the statement that loads it, or that chooses, if `reach` has one.
    reached_from: str | None = None
    #: Packed bytes in its wheel or container; None if it was not read from one.
    packed: int | None = None
    #: Path of its container, which loaders do not look into; see `Container`.
    container: str | None = None


@dataclass(frozen=True, slots=True)
class PythonLoad:
    """A call in a Python file that loads a library, or looks one up, by name."""

    path: str
    line: int
    #: `CDLL`, `PyDLL`, `LoadLibrary`, `dlopen`, `load_library`, `load_op_library`, `find_library`,
    #: `load_nvidia_dynamic_lib`; `register_fake` and `impl_abstract` load nothing, but fail if no
    #: library has registered the torch operator that they name.
    call: str
    #: Names or paths, with `*` for parts known only at run time and a leading `/` for the tree's
    #: root; `name::operator` for operators; empty if the name is computed.
    names: tuple[str, ...] = ()
    #: How far an import of the distribution gets here, and if it survives a failure.
    reach: Reach = "lazy"
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class PythonImport:
    """Import of another distribution's module; once for each `how`."""

    path: str
    line: int
    #: Dotted name as in the statement: `cuda.bindings.runtime`.
    module: str
    #: `imported`: an import of the distribution runs the statement and does not catch its failure;
    #: `called`: it also calls a function of the module, without catching failures; `tried`: the
    #: statement is in a `try` at module level; `missing`: as `imported`, but the tree has no such
    #: module, and the metadata do not require its name; or the distribution (`provider`) has the
    #: module for another system only.
    how: Literal["imported", "called", "tried", "missing"]
    #: `name==version` of the importing distribution.
    owner: str
    #: `name==version` of the distribution with the module; None if the tree has none.
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A relevant Python file that could not be read whole.

    Distributions ship templates, and files for Python 2 that nothing imports, so this is a fact and
    not a failure of the scan. Files that an import of the distribution runs are in
    `Inventory.unread` as well.
    """

    path: str
    why: str
    #: `name==version` of its distribution.
    owner: str | None = None
    #: How far an import of the distribution gets to it; `unknown` for a distribution with too much
    #: source to follow.
    reach: Reach = "lazy"


@dataclass(frozen=True, slots=True)
class Statements:
    """Literals in a Python file that is named after its version or build."""

    path: str
    #: Name to texts; `cuda_version` to `("12.5.1",)`.
    values: Mapping[str, tuple[str, ...]]
    #: `name==version` of its distribution.
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """An accelerator file that is not a host ELF file: bitcode, PTX, archives, ...

    Or a library or Python module of another system, `pe` or `macho`.
    """

    path: str
    size: int
    #: Lower-case suffix, no dot: `bc`, `ptx`, `cubin`, `fatbin`, `hsaco`, `spv`, `kpack`,
    #: `engine`, `timing`, `mxr`, `blob`, `neff`, `om`, `vkcache` ...
    kind: str
    owner: str | None = None
    #: Device code in it; empty for host code (bitcode, archives).
    device_code: tuple[DeviceCode, ...] = ()
    #: Marks in the members of a static archive.
    marks: tuple[Mark, ...] = ()
    #: See `Binary`.
    packed: int | None = None
    container: str | None = None
    #: Version of the library that compiled a network, from its header: `10.3.0.26`.
    version: str | None = None
    #: Libraries that a file for Windows links: `nvcuda.dll`.
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """An archive, a package, or a program with an archive appended, that may hold binaries.

    Binaries in it are in `Inventory.binaries` and `artefacts` with the path `CONTAINER!/NAME`. Only
    containers that are packages, hold such files, or were not opened are listed.
    """

    path: str
    size: int
    #: `zip`, `wheel`, `conda`, `deb`, `rpm`, `tar`, `cpio`, `compressed`, `lz4`, `script`,
    #: `pyinstaller`, and formats that are never opened: see `facts.trees.formats.Format`.
    kind: str
    #: `name==version` of the distribution whose RECORD lists it, if any.
    owner: str | None = None
    #: Number of files in it.
    files: int = 0
    #: Reason why it was not opened, or not completely, in one sentence.
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """Files below one folder; a file with another name outside the folder does not count."""

    path: str
    files: int
    #: In bytes.
    size: int


@dataclass(frozen=True, slots=True)
class Link:
    """Another name of a library or device file, needed by the loader model.

    Symbolic links named like a shared library, those to a folder with libraries (`lib` to
    `usr/lib`), and hard links. `target` as stored; a leading `/` means the tree's root.
    """

    path: str
    target: str
    #: True for a hard link: the same file as `target`, which is listed.
    hard: bool = False


@dataclass(frozen=True, slots=True)
class PythonPath:
    """Folders in which one interpreter of the tree finds distributions."""

    #: Path of the interpreter; for a virtual environment, its `bin/python`.
    interpreter: str
    #: `3.12`
    version: str
    #: Site folders of sys.path, in order, with the folders from `.pth` files.
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedLibrary:
    """One entry of ld.so.cache."""

    name: str
    #: Absolute path in the tree.
    path: str
    #: Kind of the library, as in glibc's sysdeps/generic/ldconfig.h.
    flags: int
    #: Its glibc-hwcaps folder (`x86-64-v3`), if any.
    hwcaps: str | None = None


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """One package of the system's package manager: dpkg, apk or RPM."""

    name: str
    #: With epoch and revision or release: `1:2.36-9`.
    version: str
    kind: Literal["deb", "apk", "rpm"] = "deb"
    architecture: str = ""
    #: Who built it; RPM alone records that.
    vendor: str = ""
    #: SPDX or free text; dpkg does not record it.
    license: str = ""
    #: Names of the installed packages with what it requires, sorted; paths are not looked up.
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedPath:
    """A path that the RECORD of more than one distribution lists."""

    path: str
    #: `name==version`, sorted.
    owners: tuple[str, ...]
    #: Owners whose RECORD hash matches the bytes on disk; None if not checked.
    matches: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of an image, the lowest first."""

    #: Digest of the uncompressed layer (`sha256:...`), from the image's configuration.
    digest: str
    #: Instruction that made it, from the image's history; empty if unknown.
    instruction: str
    #: Bytes of its files.
    size: int
    #: Bytes of its files that a later layer deleted or replaced; they still ship.
    hidden: int = 0
    #: True if it is known to come from the base image, and not from a step of our own.
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class ShadowedFiles:
    """Files of one folder in a layer that a later layer deleted or replaced."""

    #: Common folder of the files: `usr/lib/python3/site-packages/nvidia/cublas`.
    path: str
    files: int
    size: int
    #: Indexes into `Inventory.layers`: the layer with the files, and the layer that hides them.
    layer: int
    by: int
    #: True if a later layer has other bytes there; else the files are deleted.
    replaced: bool = False
    #: Names of the libraries and tools among them, the largest first; at most a dozen.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedFile:
    """A possibly relevant file that a shallow read did not open: see `Inventory.closed`."""

    path: str
    size: int
    owner: str | None = None
    #: Reason for its relevance: its name; its first bytes, whatever its name; or only its size,
    #: with the name of a harmless file.
    by: Literal["name", "bytes", "size"] = "name"
    #: True for a Python file that no import of its distribution runs.
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Unread:
    """An existing file that could not be read, with the reason in one sentence."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Stats:
    """Costs of the scan."""

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
    #: The largest folders, by path; none if the tree is a wheel.
    folders: tuple[Folder, ...] = ()
    python_loads: tuple[PythonLoad, ...] = ()
    python_imports: tuple[PythonImport, ...] = ()
    unparsed: tuple[Unparsed, ...] = ()
    #: Statements of distributions, by path.
    statements: tuple[Statements, ...] = ()
    python_paths: tuple[PythonPath, ...] = ()
    links: tuple[Link, ...] = ()
    #: `ID VERSION_ID` of os-release: `rhel 9.4`; empty if unknown.
    operating_system: str = ""
    system_packages: tuple[SystemPackage, ...] = ()
    #: Path of a binary, artefact, metadata folder, or Python file that loads a library, to `name
    #: version` of the system package that installed it.
    packaged: Mapping[str, str] = field(default_factory=dict)
    shared_paths: tuple[SharedPath, ...] = ()
    #: Folders in ld.so.conf and its includes, in order.
    library_folders: tuple[str, ...] = ()
    #: Entries of ld.so.cache in order; None if the tree has none.
    loader_cache: tuple[CachedLibrary, ...] | None = None
    #: Names in ld.so.preload, in order.
    preload: tuple[str, ...] = ()
    #: Architecture in musl's spelling to the folders of its /etc/ld-musl-<architecture>.path.
    musl_folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Environment of the image's configuration; empty for other trees.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Labels of the image's configuration.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Layers of an image, the lowest first; empty if not requested.
    layers: tuple[Layer, ...] = ()
    #: Path of a binary, artefact, link, metadata folder, or Python file that loads a library, to
    #: the index of its layer.
    origins: Mapping[str, int] = field(default_factory=dict)
    #: Files in layers that containers do not see, the largest first.
    buried: tuple[ShadowedFiles, ...] = ()
    #: Files that a shallow read did not open, so only names and sizes are known. Sorted by path.
    closed: tuple[ClosedFile, ...] = ()
    unread: tuple[Unread, ...] = ()
    stats: Stats = field(default_factory=Stats)

    @property
    def loadable(self) -> tuple[Binary, ...]:
        """The binaries in the tree itself: no loader looks into a container."""
        return tuple(binary for binary in self.binaries if binary.container is None)


# JSON, written with the standard library only; `buildmatrix.images.store` reads and validates it.
# Fields with their default value are omitted: most sections, literals and links are many and small.


def encode(inventory: Inventory) -> bytes:
    """Encode as UTF-8 JSON, deterministically; field names are those of the model."""
    return b"{" + b",".join(_encode_members(inventory)) + b"}"


def _encode_members(inventory: Inventory) -> Iterator[bytes]:
    """Yield the fields, entry by entry: plain values take ten times the memory of their text."""
    # The schema is written although it is the default: readers check it first.
    yield b'"schema":' + _encode_value(inventory.schema)
    for name, default in _defaults(Inventory):
        value = getattr(inventory, name)
        if name == "schema" or value == default:
            continue
        if isinstance(value, tuple):
            text = b"[" + b",".join(_encode_value(item) for item in value) + b"]"
        else:
            text = _encode_value(value)
        yield _encode_value(name) + b":" + text


def _encode_value(value: object) -> bytes:
    return json.dumps(_to_plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _to_plain(value: object) -> object:
    if isinstance(value, str):
        # A lone surrogate, from bytes that are not text, is invalid JSON for strict readers.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_to_plain(key): _to_plain(item) for key, item in value.items()}
    return _fields_of(value)


def _fields_of(value: object) -> dict[str, object]:
    return {
        name: _to_plain(item)
        for name, default in _defaults(type(value))  # type: ignore[arg-type]  # a class is hashable
        if (item := getattr(value, name)) != default
    }


@cache
def _defaults(dataclass: Any) -> tuple[tuple[str, object], ...]:
    """Return a dataclass's fields with their defaults; MISSING, which equals nothing, for none."""
    return tuple(
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(dataclass)
    )
