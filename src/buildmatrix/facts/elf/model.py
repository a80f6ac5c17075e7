"""The facts of one ELF object. Nothing in here knows a vendor.

Names follow the System V gABI, chapters 4 and 5, and the LSB where it extends them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Section:
    """One named section; offset and size in bytes, size 0 on disk for `nobits`."""

    name: str
    offset: int
    size: int
    nobits: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A string in read-only data or code that looks like the name of a shared library."""

    text: str
    offset: int
    section: str | None = None
    #: The name, or a path that ends with it, is a whole NUL-terminated string; False for a part of
    #: a sentence, of source text, or of a string table without NUL.
    exact: bool = False
    #: Other letters stand directly behind it, as in the string tables of Rust and Go, where only
    #: code knows where a string ends. Where an unversioned name ends is a guess then.
    packed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A known byte sequence: proof that something was linked statically."""

    #: Name in the table of marks (`facts.elf.search`), for example `cudart-error-string`.
    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The symbol versions that an object needs of one library: `GLIBC_2.17`, `libcudart.so.12`."""

    library: str
    versions: tuple[str, ...]
    #: Versions of these that may be missing (VER_FLG_WEAK).
    weak: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SymbolNeed:
    """Symbols that another object must define, all of one version or of none."""

    names: tuple[str, ...]
    #: The version, and the library that had it when the object was linked.
    version: str | None = None
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """The symbols of one object that the loader binds."""

    #: In the order of the dynamic symbol table; see `facts.elf.symbols.read_binding` for those left
    #: out.
    needs: tuple[SymbolNeed, ...] = ()
    #: GNU hashes of the symbols that it defines, 32 bits each, little-endian, in Base64. Their
    #: lowest bits mean nothing.
    exports: str = ""


@dataclass(frozen=True, slots=True)
class DlopenNote:
    """Libraries that an object says it loads by itself, in a note made for that.

    Source: https://systemd.io/ELF_DLOPEN_METADATA.
    """

    #: Names for one library, tried in this order.
    sonames: tuple[str, ...]
    feature: str | None = None
    #: `required`, `recommended` or `suggested`.
    priority: str = "recommended"


@dataclass(frozen=True, slots=True)
class Undefined:
    """A symbol that another object must define."""

    name: str
    #: The needed version, and the library that has to define it; None where versions are not used.
    version: str | None = None
    library: str | None = None
    #: The loader continues if no library defines it.
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of one ELF object, for a person to read."""

    #: In the order of the dynamic symbol table.
    undefined: tuple[Undefined, ...] = ()
    #: Names that others can link to.
    defined: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """One piece of device code, or all of one format and architecture in a file, summed up."""

    #: Container: `nv-fatbin`, `hip-bundle`, `hip-ccob`, `hip-kpack`, `offload-bundle`,
    #: `offload-binary`, `elf` (the object itself is device code). For files with a single program,
    #: the kind of file: `spirv`, `ptx`, `bitcode`, `triton`, and others of
    #: `facts.binaries.devicefile`. PTX in host data is `ptx-text`.
    format: str
    #: Kind of the entries: `sass`, `ptx`, `lto-ir`, `amdgcn`, `spirv`, `zebin`, `aicore`,
    #: `bitcode`, `ir`, `unknown`; for a pipeline cache, its vendor's PCI-SIG id: `pci-10de`.
    kind: str
    #: `sm_90`, `compute_120`, `gfx942:sramecc+:xnack-`, `spir64`; None if the bytes do not show it.
    #: SPIR-V without a container: `spirv64` and `spirv32` for kernels, `spirv` for shaders.
    arch: str | None
    count: int
    #: Bytes on disk of all entries together.
    size: int
    #: File offset of the first one.
    offset: int
    #: Section that holds the first one, where sections exist.
    section: str | None = None
    #: Reason why `arch` is None, or why the list may be incomplete.
    note: str | None = None
    #: Number of compressed entries.
    compressed: int = 0
    #: Newest version of the entries' language (`9.2` for PTX), if the container has it. The
    #: compiler must support it.
    language: str | None = None


@dataclass(frozen=True, slots=True)
class CodeGroup:
    """Objects of one file that were compiled for the same architectures.

    An object is a container, which a compiler makes of one translation unit, with at least one
    kernel. See `facts.binaries.groups`.
    """

    #: Container, as in `DeviceCode`.
    format: str
    #: As in `DeviceCode`, sorted; empty for the objects of groups beyond the limit.
    architectures: tuple[str, ...]
    #: Number of objects.
    count: int
    #: Bytes on disk of all of them.
    size: int
    #: File offset of the first one.
    offset: int
    #: Kernel symbols of the first objects, where they can be read.
    kernels: tuple[str, ...] = ()
    #: True if a linker made other objects from these, which run in their place. Only their portable
    #: code is still usable.
    is_relocatable: bool = False


def newer_version(first: str | None, second: str | None) -> str | None:
    """Return the newer of two versions such as `8.7`; None if neither is known."""
    present = [version for version in (first, second) if version is not None]
    return max(present, key=lambda version: [int(n) for n in version.split(".")], default=None)


@dataclass(frozen=True, slots=True)
class CodeContainer:
    """A run of pieces, and the file offset behind it, which is always past its start."""

    entries: tuple[DeviceCode, ...]
    end: int


# Suffixes


#: Suffixes that only device code has, whatever its bytes look like (compressed, encrypted, newer):
#: of compilers, of MIGraphX, and of Triton's cache.
SUFFIXES = frozenset(
    {"cubin", "fatbin", "hipfb", "hsaco", "kpack", "ltoir", "ptx", "spv", "mxr",
     "ttir", "ttgir", "llir", "amdgcn", "zebin"}
)  # fmt: skip
_COMPRESSED = (".zst", ".gz", ".xz", ".bz2", ".lz4")


def strip_compression(name: str) -> str:
    """Return the name of a compressed file's content: `kernel.ptx` for `kernel.ptx.zst`."""
    for suffix in _COMPRESSED:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


@dataclass(frozen=True, slots=True)
class Elf:
    """Facts from the headers, the dynamic section and the sections of one ELF object."""

    bits: int
    little_endian: bool
    #: `EM_` name in lower case without the prefix (`x86_64`, `cuda`, `amdgpu`), or its number.
    machine: str
    #: `rel`, `exec`, `dyn`, `core`, or its number.
    type: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str | None = None
    #: DT_FLAGS_1 (LSB 5.0); DF_1_NODEFLIB is 0x800.
    flags_1: int = 0
    build_id: str | None = None
    #: EI_OSABI by name (`sysv`, `gnu`, ...), or its number.
    os_abi: str = "sysv"
    #: System and oldest kernel, from the ABI note of the GNU tools: `linux 3.2.0`.
    abi_tag: str | None = None
    #: x86-64 level without which ld.so refuses the file (`x86-64-v3`), and the level that some of
    #: its code uses after a check of its own; None if the file has no such note.
    isa_needed: str | None = None
    isa_used: str | None = None
    #: In file order (DT_VERNEED).
    version_needs: tuple[VersionNeed, ...] = ()
    #: Versions of the object's own symbols (DT_VERDEF), the soname first.
    version_definitions: tuple[str, ...] = ()
    #: None if not all tables of symbols were read. Not part of any document.
    binding: Binding | None = field(default=None, metadata={"json": "never"})
    dlopen_notes: tuple[DlopenNote, ...] = ()
    sections: tuple[Section, ...] = ()
    device_code: tuple[DeviceCode, ...] = ()
    #: Groups of objects with different target architectures; only for files read whole.
    code_groups: tuple[CodeGroup, ...] = ()
    literals: tuple[Literal, ...] = ()
    marks: tuple[Mark, ...] = ()
    #: True if the dynamic section was read. If not, `needed`, `soname` and the search paths are
    #: unknown, not empty.
    dynamic_read: bool = True
    #: Library names in the string table of the dynamic section, if `.dynamic` itself was not read.
    #: They include the NEEDED entries, and perhaps the file's own name, version needs, or names
    #: that a tool removed from the section but not from the table.
    linked_names: tuple[str, ...] = ()
    #: Bytes read from the start; None for the whole file. Lists may be incomplete for the rest.
    read: int | None = None
    #: Bytes of loaded data behind `read`: an upper bound of the device code not seen, since device
    #: code is data, and the program headers have the size of that.
    unread_data: int = 0
    #: Unreadable parts, one sentence each; empty if everything was read.
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file other than a host ELF file that holds, or may hold, device code."""

    #: Usual suffix of such files: `cubin`, `fatbin`, `ptx`, `bc`, `spv`, `kpack`, `a`.
    kind: str
    device_code: tuple[DeviceCode, ...] = ()
    #: Marks in the members of a static archive.
    marks: tuple[Mark, ...] = ()
    #: Number of objects in a static archive.
    members: int = 0
    #: Version of the library that compiled a network, from its header: `10.3.0.26`.
    version: str | None = None
    #: Unreadable parts, one sentence each.
    unread: tuple[str, ...] = ()
    #: Libraries that a Python module of Windows links: `nvcuda.dll`.
    links: tuple[str, ...] = ()
