"""Architectures of most code objects of a distribution.

A compiler makes an object of each source file, for the requested architectures. Libraries linked
beside them (a part of the CUDA toolkit, NCCL, CUTLASS) were compiled for others, and a few such
objects do not make a framework run: of the 560 objects in libphi.so of paddlepaddle-gpu 2.6.2 one
has code for an sm_90, and an H100 is `not supported by Paddle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.architectures import Grade, grade, is_bound
from buildmatrix.device_code.model import CodeGroup, DeviceCode

#: One in so many objects, or of their bytes, is not the purpose of a library. Vendors' libraries
#: have kernels for single architectures: 4 in 100 objects of cuTENSOR 2.3.1 serve a V100.
_FEW = 50
#: Bytes of objects that are worth a word when all that they lack is binary code: less is compiled
#: in a second.
WORTH = 1_000_000


@dataclass(frozen=True, slots=True)
class CodeObjects:
    """Objects that were compiled for the same architectures."""

    architectures: tuple[str, ...]
    count: int
    #: Bytes.
    size: int


def code_objects(
    architectures: Sequence[str], codes: Iterable[DeviceCode], groups: Sequence[CodeGroup]
) -> tuple[CodeObjects, ...]:
    """The objects of one file whose code is for `architectures`; none where that cannot be told.

    Objects for features of exact GPUs do not count, nor do those from which others were linked.
    """
    if not groups:
        code = [item for item in codes if item.arch in architectures]
        if not code or is_bound(architectures):
            return ()
        most = max(item.count for item in code)
        return (CodeObjects(tuple(architectures), most, sum(item.size for item in code)),)
    if any(not set(group.architectures) <= set(architectures) for group in groups):
        return ()
    return tuple(
        CodeObjects((*group.architectures, *portable(group, groups)), group.count, group.size)
        for group in groups
        if group.architectures and not group.is_relocatable and not is_bound(group.architectures)
    )


def linked_when_loaded(groups: Sequence[CodeGroup]) -> tuple[str, ...]:
    """Return the architectures of objects that the driver links when the file is loaded.

    `nvcc -rdc` links nothing where its own objects are PTX alone. Beside these lies the device
    runtime of the toolkit, with machine code for all GPUs: no kernel of the file is compiled by
    that (seen on an H100: error 223 without the driver's compiler). Empty for other files.
    """
    late = [group for group in groups if not _machine_code(group)]
    if not late or not all(group.is_relocatable for group in groups):
        return ()
    return tuple(sorted({arch for group in late for arch in group.architectures}))


def portable(linked: CodeGroup, groups: Iterable[CodeGroup]) -> tuple[str, ...]:
    """Return the code that the driver can compile and link of the objects that `linked` is made of.

    These objects have machine code for the same GPUs. Objects without machine code count if there
    are at least as many as were linked. So the 5 of libphi.so in paddlepaddle-gpu 2.6.2 are in one
    of its objects, and not in the 559 others.
    """
    machine_code = _machine_code(linked)
    archs = {
        arch
        for part in groups
        if part.is_relocatable
        and (
            _machine_code(part) == machine_code
            if _machine_code(part)
            else part.count >= linked.count
        )
        for arch in part.architectures
    }
    return tuple(sorted(archs - machine_code))


def _machine_code(group: CodeGroup) -> frozenset[str]:
    return frozenset(arch for arch in group.architectures if not arch.startswith("compute_"))


def prevailing(device: str, objects: Sequence[CodeObjects]) -> Grade | None:
    """`none` or `jit` where most objects have no more for a GPU; None where that says nothing."""
    total = sum(item.count for item in objects)
    grades = [(grade(device, item.architectures), item) for item in objects]
    served = [item for served, item in grades if served != "none"]
    if _FEW * sum(item.count for item in served) < total and _FEW * sum(
        item.size for item in served
    ) < sum(item.size for item in objects):
        return "none"
    late = [item for served, item in grades if served == "jit"]
    if 2 * sum(item.count for item in late) > total and sum(item.size for item in late) >= WORTH:
        return "jit"
    return None
