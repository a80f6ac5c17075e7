"""The facts of one ELF object. Nothing in here knows a vendor.

Names follow the System V gABI, chapters 4 and 5, and the LSB where it extends them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One named section; offset and size in bytes, size 0 on disk for `nobits`."""

    name: str
    offset: int
    size: int
    nobits: bool = False


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """All device code of one format and architecture in one file, summed up."""

    #: Container: `nv-fatbin`, `hip-bundle`, `hip-ccob`, `hip-kpack`, `offload-bundle`,
    #: `offload-binary`, `elf` (the object itself is device code). Of files that hold one program
    #: the kind of file: `spirv`, `ptx`, `bitcode`, `triton`, and others of `elf.devicefile`; PTX in
    #: data of the host is `ptx-text`.
    format: str
    #: What the entries are: `sass`, `ptx`, `lto-ir`, `amdgcn`, `spirv`, `zebin`, `aicore`,
    #: `bitcode`, `ir`, `unknown`.
    kind: str
    #: `sm_90`, `compute_120`, `gfx942:sramecc+:xnack-`, `spir64`; None where the bytes cannot say.
    #: SPIR-V without a container: `spirv64` and `spirv32` for kernels, `spirv` for shaders.
    arch: str | None
    count: int
    #: Bytes on disk of all entries together.
    size: int
    #: File offset of the first one.
    offset: int
    #: Section that holds the first one, where sections exist.
    section: str | None = None
    #: Why `arch` is None, or why the list may be incomplete.
    note: str | None = None
    #: How many of the entries are compressed.
    compressed: int = 0


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

    #: Name in the table of marks (`elf.marks`), for example `cudart-error-string`.
    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The symbol versions that an object asks of one library: `GLIBC_2.17`, `libcudart.so.12`."""

    library: str
    versions: tuple[str, ...]


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
class Elf:
    """What the headers, the dynamic section and the sections of one ELF object say."""

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
    #: EI_OSABI in words (`sysv`, `gnu`, ...), or its number.
    os_abi: str = "sysv"
    #: System and oldest kernel, from the ABI note of the GNU tools: `linux 3.2.0`.
    abi_tag: str | None = None
    #: In the order of the file (DT_VERNEED).
    version_needs: tuple[VersionNeed, ...] = ()
    #: Versions that the object's own symbols have (DT_VERDEF), the soname first.
    version_definitions: tuple[str, ...] = ()
    dlopen_notes: tuple[DlopenNote, ...] = ()
    sections: tuple[Section, ...] = ()
    device_code: tuple[DeviceCode, ...] = ()
    literals: tuple[Literal, ...] = ()
    marks: tuple[Mark, ...] = ()
    #: Whether the dynamic section was read; where not, `needed`, `soname` and the search paths are
    #: unknown, not empty.
    dynamic_read: bool = True
    #: Library names in the string table of the dynamic section, where `.dynamic` itself was not
    #: read: NEEDED entries among them, and perhaps the file's own name, version needs, or names
    #: that a tool took out of the section but not out of the table.
    linked_names: tuple[str, ...] = ()
    #: Bytes from the start that were read; None for the whole file: what lies behind is unknown,
    #: and lists may be incomplete.
    read: int | None = None
    #: Bytes of loaded data behind `read`. There is at most this much device code that was not seen:
    #: it is data, and the program headers say how much of that there is.
    unread_data: int = 0
    #: What could not be read, one sentence each; empty when everything was.
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file that is no ELF of the host and holds device code, or may hold it."""

    #: The suffix that such a file usually has: `cubin`, `fatbin`, `ptx`, `bc`, `spv`, `kpack`, `a`.
    kind: str
    device_code: tuple[DeviceCode, ...] = ()
    #: Of the members of a static archive.
    marks: tuple[Mark, ...] = ()
    #: Objects in a static archive.
    members: int = 0
    #: What could not be read, one sentence each.
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Undefined:
    """A symbol that another object must define."""

    name: str
    #: The version asked for, and the library that it is asked of; None where versions are not used.
    version: str | None = None
    library: str | None = None
    #: The loader goes on when nobody defines it.
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of one ELF object, for a person to read."""

    #: In the order of the dynamic symbol table.
    undefined: tuple[Undefined, ...] = ()
    #: Names that others can link to.
    defined: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
