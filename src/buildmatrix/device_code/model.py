"""Facts about device code, independent of vendors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """All device code of one format and architecture in one file, summed up."""

    #: Container: `nv-fatbin`, `hip-bundle`, `hip-ccob`, `hip-kpack`, `offload-bundle`,
    #: `offload-binary`, `elf` (the object itself is device code). For files with a single program,
    #: the kind of file: `spirv`, `ptx`, `bitcode`, `triton`, and others of `binaries.devicefile`.
    #: PTX in host data is `ptx-text`.
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
    kernel. See `device_code.groups`.
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
