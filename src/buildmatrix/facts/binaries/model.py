"""Facts of one binary: an ELF file, or another file with device code."""

from __future__ import annotations

from dataclasses import dataclass, field

from buildmatrix.facts.device_code.model import CodeGroup, DeviceCode
from buildmatrix.facts.elf.model import Binding, DlopenNote, Literal, Mark, Section, VersionNeed


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
