"""What evidence weighs on disk, and device code in a wheel or a layer.

The latter is what the threshold for bloat is about. Whether kernels are compressed is a flag of the
build, and a wheel compresses them again anyway: so the same kernels shall weigh the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Inventory

#: Kinds of evidence that stand for bytes of a file.
HELD = ("bundled", "tool", "device-code", "static")

#: What device code that its compiler left uncompressed packs to in a wheel or a layer: 0.13 to 0.42
#: in the wheels of the corpus. What is compressed already packs to 0.7 to 0.98, and counts whole.
_PACKED = 0.33


def device_code_bytes(inventory: Inventory) -> Mapping[str, int]:
    """Path of a binary → bytes of a wheel or a layer that carry its device code, at most.

    A wheel says what a whole file takes in it; for other trees it is an estimate.
    """
    found: dict[str, int] = {}
    for binary in inventory.binaries:
        estimate = sum(
            code.size * (1 - (1 - _PACKED) * (code.count - code.compressed) / max(code.count, 1))
            for code in binary.elf.device_code
        )
        if estimate:
            most = estimate if binary.packed is None else min(estimate, binary.packed)
            found[binary.path] = round(most)
    return found


def total(evidence: Iterable[Evidence]) -> int:
    """Bytes that the evidence stands for, each file once."""
    sizes: dict[str, int] = {}
    for item in evidence:
        sizes[item.path] = max(item.size, sizes.get(item.path, 0))
    return sum(sizes.values())
