"""The facts of one binary: an ELF file, or another file that holds device code."""

from __future__ import annotations

from dataclasses import dataclass, field

from buildmatrix.device_code.model import CodeGroup, DeviceCode
from buildmatrix.elf.model import Binding, DlopenNote, Literal, Mark, Section, VersionNeed


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
    #: Instruction level of x86-64 without which ld.so refuses the file (`x86-64-v3`), and the one
    #: that some of its code uses, behind a test of its own; None where the file does not say.
    isa_needed: str | None = None
    isa_used: str | None = None
    #: In the order of the file (DT_VERNEED).
    version_needs: tuple[VersionNeed, ...] = ()
    #: Versions that the object's own symbols have (DT_VERDEF), the soname first.
    version_definitions: tuple[str, ...] = ()
    #: None where the tables of symbols were not read, or not all of them. No document has it.
    binding: Binding | None = field(default=None, metadata={"json": "never"})
    dlopen_notes: tuple[DlopenNote, ...] = ()
    sections: tuple[Section, ...] = ()
    device_code: tuple[DeviceCode, ...] = ()
    #: What the objects of a file that was read whole were compiled for, where that differs.
    code_groups: tuple[CodeGroup, ...] = ()
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
    #: Of the library that compiled a network, as its header says: `10.3.0.26`.
    version: str | None = None
    #: What could not be read, one sentence each.
    unread: tuple[str, ...] = ()
