"""The facts of device code. Nothing in here knows a vendor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """All device code of one format and architecture in one file, summed up."""

    #: Container: `nv-fatbin`, `hip-bundle`, `hip-ccob`, `hip-kpack`, `offload-bundle`,
    #: `offload-binary`, `elf` (the object itself is device code). Of files that hold one program
    #: the kind of file: `spirv`, `ptx`, `bitcode`, `triton`, and others of `binaries.devicefile`;
    #: PTX in data of the host is `ptx-text`.
    format: str
    #: What the entries are: `sass`, `ptx`, `lto-ir`, `amdgcn`, `spirv`, `zebin`, `aicore`,
    #: `bitcode`, `ir`, `unknown`; of a cache of pipelines whose it is, by the id of the PCI-SIG:
    #: `pci-10de`.
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
    #: The newest version of the language that the entries are written in (`9.2` of PTX), where the
    #: container says it: what compiles them must know it.
    language: str | None = None


@dataclass(frozen=True, slots=True)
class CodeGroup:
    """Objects of one file that were compiled for the same architectures.

    An object is a container, which a compiler makes of one translation unit, with at least one
    kernel. See `device_code.groups`.
    """

    #: Container, as in `DeviceCode`.
    format: str
    #: As in `DeviceCode`, sorted; none for the objects of all groups that were too many.
    architectures: tuple[str, ...]
    #: Objects.
    count: int
    #: Bytes on disk of all of them.
    size: int
    #: File offset of the first one.
    offset: int
    #: Symbols of some kernels of the first ones, where they can be read.
    kernels: tuple[str, ...] = ()
    #: Whether a linker made other objects from these, which run in their place; only their portable
    #: code is still of use.
    is_relocatable: bool = False
