"""Which device code runs on which GPU.

Names are those that the tools use: `sm_90`, `compute_90`, `gfx942:xnack-`, `spir64`. `native` code
runs as it is; `jit` code is compiled by the driver when the program starts, which can take minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Support = Literal["native", "jit", "none"]

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
#: SPIR-V is a portable form: Intel's driver compiles it for whatever GPU is there.
_PORTABLE = ("spir64", "spirv64", "spirv")


def support(device: str, codes: Iterable[str]) -> Support:
    """How well a GPU of architecture `device` is served by code for the architectures `codes`."""
    served = {_support(device, code) for code in codes}
    return "native" if "native" in served else "jit" if "jit" in served else "none"


def _support(device: str, code: str) -> Support:
    gpu, entry = _CUDA.fullmatch(device), _CUDA.fullmatch(code)
    if gpu is not None and entry is not None:
        return _cuda(gpu, entry)
    if _GFX.match(device) and _GFX.match(code):
        return "native" if _gfx(device, code) else "none"
    if device == code:
        return "native"
    return "jit" if code in _PORTABLE and gpu is None and not _GFX.match(device) else "none"


def _cuda(gpu: re.Match[str], code: re.Match[str]) -> Support:
    """Binaries run on the same major and newer minors, PTX on everything newer.

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
    return "native" if code["space"] == "sm" else "jit"


def _capability(match: re.Match[str]) -> tuple[int, int]:
    return divmod(int(match["number"]), 10)


def _gfx(device: str, code: str) -> bool:
    """The processor must be the same or in the generic one; feature settings must not disagree.

    A feature that one side leaves out is "any" there (LLVM, "Target ID").
    """
    gpu, *wanted = device.split(":")
    processor, *settings = code.split(":")
    if gpu != processor and gpu not in _GENERIC_GFX.get(processor, ()):
        return False
    has = {setting[:-1]: setting[-1] for setting in wanted}
    return all(has.get(setting[:-1], setting[-1]) == setting[-1] for setting in settings)
