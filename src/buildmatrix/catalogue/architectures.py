"""GPU architectures: the device code that each runs, and the devices of a node class.

Names are those that the tools use: `sm_90`, `compute_90`, `gfx942:xnack-`, `spir64`. Code that runs
unchanged was made for the GPU or an older one of its line (`native`), for its family (`sm_100f`),
or for a generic processor (`gfx11-generic`). `jit` code is compiled by the driver when the program
starts, which can take minutes. `unknown` code runs on some devices of the vendor, and its name does
not say which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.names import product_words
from buildmatrix.catalogue.tables import Product
from buildmatrix.matrix.model import NodeClass

#: From best to worst; `unknown` code may be any of those before it.
Grade = Literal["native", "family", "generic", "jit", "unknown", "none"]
#: Coarse grade, where it does not matter by which name code runs unchanged.
Support = Literal["native", "jit", "unknown", "none"]

GRADES: tuple[Grade, ...] = ("native", "family", "generic", "jit", "unknown", "none")
SUPPORTS: tuple[Support, ...] = get_args(Support)
#: Grades of code that runs unchanged.
READY: tuple[Grade, ...] = ("native", "family", "generic")
_SUPPORT: dict[Grade, Support] = {
    **dict.fromkeys(READY, "native"),
    "jit": "jit",
    "unknown": "unknown",
    "none": "none",
}

#: CUDA C++ Programming Guide, "Compute Capabilities": number, and `a` or `f` for feature sets.
_CUDA = re.compile(r"(?P<space>sm|compute|lto)_(?P<number>\d{1,9})(?P<features>[af]?)")
_GFX = re.compile(r"gfx[0-9a-f-]+(?:generic)?")
#: LLVM, "User Guide for AMDGPU Backend", section "Generic processors".
_GENERIC_GFX = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": (
        *("gfx1030", "gfx1031", "gfx1032", "gfx1033"),
        *("gfx1034", "gfx1035", "gfx1036"),
    ),
    "gfx11-generic": (
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    ),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
#: SPIR-V is portable: the driver compiles it for whatever GPU of the vendor is there.
_PORTABLE = re.compile(r"spir64|spirv64|spirv|spirv64_intel.*")
_PORTABLE_GFX = "amdgcnspirv"
#: clang's ClangOffloadBundler: made for devices that were chosen at compile time and that the
#: bundle's name does not show.
_FOR_SOME = re.compile(r"(?:spir64|spirv64)_gen")
#: `-fsycl-targets=intel_gpu_bmg_g21` is `bmg-g21` in the words of ocloc.
_INTEL_TARGET = "intel_gpu_"
#: ocloc, "ocloc compile --help": acronyms for several devices, beside prefixes of names (`bmg` for
#: `bmg-g21`).
_INTEL_FAMILIES = {"dg2": ("acm-", "ats-m")}


def grade(device: str, codes: Iterable[str]) -> Grade:
    """Grade how well the best of `codes` serves a GPU of architecture `device`."""
    return min((_grade(device, code) for code in codes), key=GRADES.index, default="none")


def support(device: str, codes: Iterable[str]) -> Support:
    """Return the coarse grade of the best of `codes` for a GPU of architecture `device`."""
    return support_of(grade(device, codes))


def support_of(graded: Grade) -> Support:
    """Return the coarse form of a grade."""
    return _SUPPORT[graded]


def is_portable(code: str) -> bool:
    """Return True for SPIR-V, the usual form of programs where it is the portable one.

    PTX does not count: it ships beside binaries, for GPUs to come.
    """
    return _PORTABLE.fullmatch(code) is not None


def is_bound(codes: Iterable[str]) -> bool:
    """Return True if all code uses features of exact GPUs, and so is for no others on purpose."""
    entries = [_CUDA.fullmatch(code) for code in codes]
    return bool(entries) and all(entry is not None and entry["features"] for entry in entries)


def _grade(device: str, code: str) -> Grade:
    gpu, entry = _CUDA.fullmatch(device), _CUDA.fullmatch(code)
    if gpu is not None and entry is not None:
        return _cuda(gpu, entry)
    if device == code:
        return "native"
    if _GFX.match(device):
        return _gfx(device, code)
    if gpu is not None or entry is not None or _GFX.match(code):
        return "none"
    return _intel(device, code)


def _cuda(gpu: re.Match[str], code: re.Match[str]) -> Grade:
    """Grade CUDA code: binaries run on the same major and newer minors, PTX on everything newer.

    Code with suffix `a` runs on exactly its architecture, with `f` on its family only.
    """
    (gpu_major, gpu_minor), (major, minor) = _capability(gpu), _capability(code)
    same_major = gpu_major == major and gpu_minor >= minor
    if code["features"] == "a":
        fits = (gpu_major, gpu_minor) == (major, minor)
    elif code["features"] == "f" or code["space"] == "sm":
        fits = same_major
    else:
        fits = (gpu_major, gpu_minor) >= (major, minor)
    if not fits:
        return "none"
    if code["space"] != "sm":
        return "jit"
    return "family" if code["features"] == "f" and gpu_minor > minor else "native"


def _capability(match: re.Match[str]) -> tuple[int, int]:
    return divmod(int(match["number"]), 10)


def _gfx(device: str, code: str) -> Grade:
    """The processor must be the same or in the generic one; feature settings must not disagree.

    A feature that one side leaves out is "any" there (LLVM, "Target ID").
    """
    if code == _PORTABLE_GFX:
        return "jit"
    gpu, *wanted = device.split(":")
    processor, *settings = code.split(":")
    is_generic = gpu in _GENERIC_GFX.get(processor, ())
    has = {setting[:-1]: setting[-1] for setting in wanted}
    agree = all(has.get(setting[:-1], setting[-1]) == setting[-1] for setting in settings)
    if not agree or (gpu != processor and not is_generic):
        return "none"
    return "generic" if is_generic else "native"


def _intel(device: str, code: str) -> Grade:
    if _PORTABLE.fullmatch(code):
        return "jit"
    if _FOR_SOME.fullmatch(code):
        return "unknown"
    made_for = code.removeprefix(_INTEL_TARGET).replace("_", "-")
    if made_for == device:
        return "native"
    families = (f"{made_for}-", *_INTEL_FAMILIES.get(made_for, ()))
    return "family" if device.startswith(families) else "none"


#: 80 GB in a vendor's words are 80 GiB (7 % more), less up to 8 % that the driver and ECC take.
_MEMORY_TOLERANCE = 0.08
#: Spellings of one architecture: `compute_90`, `sm_90a`, `gfx942:xnack-`.
_CUDA_NUMBER = re.compile(r"(?:sm|compute)_([0-9]+)[af]?")


def product(name: str, backend: str, catalogue: Catalogue) -> Owned[Product] | None:
    """Return the product of a device; `name` as its vendor's tools or a label spell it.

    If two backends have such a device (`cuda` and `vulkan`), the one of `backend` is preferred.
    """
    entries = catalogue.products.find(product_words(name))
    own = (owned for owned in entries if owned.backend == backend)
    return next(own, entries[0] if entries else None)


def architectures(node: NodeClass, catalogue: Catalogue) -> tuple[str, ...]:
    """Return the GPU architectures of a node class: its `archs`, then those of its `products`.

    An unknown product adds none; such a specification is not loaded (`matrix.load`).
    """
    products = (product(name, node.backend, catalogue) for name in node.products)
    return tuple(
        dict.fromkeys(
            (
                *node.archs,
                *(arch for owned in products if owned for arch in owned.entry.architectures),
            )
        )
    )


def vendors(node: NodeClass, catalogue: Catalogue) -> frozenset[str]:
    """Return the vendors of a node class's devices, for a backend of several vendors.

    Empty if neither products nor architectures show it.
    """
    named = {
        owned.vendor
        for name in node.products
        for owned in catalogue.products.find(product_words(name))
        if owned.vendor is not None
    }
    wanted = {bare_architecture(arch) for arch in node.archs}
    by_architecture = {
        file.vendor
        for file in catalogue.files.values()
        for entry in file.products
        if file.vendor is not None and wanted.intersection(entry.architectures)
    }
    return frozenset(named | by_architecture)


def bare_architecture(arch: str) -> str:
    """Return the architecture of a device that runs `arch`, without its feature suffixes."""
    match = _CUDA_NUMBER.fullmatch(arch)
    return f"sm_{match[1]}" if match else arch.partition(":")[0]


def same_memory(stated: int, seen: int) -> bool:
    """Return True if two amounts of memory may be those of one device."""
    return abs(seen / stated - 1) <= _MEMORY_TOLERANCE
