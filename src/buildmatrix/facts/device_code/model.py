"""Facts about device code, independent of vendors, and its file name suffixes."""

from __future__ import annotations

from dataclasses import dataclass


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
    kernel. See `facts.device_code.groups`.
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
