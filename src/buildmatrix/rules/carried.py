"""What device code weighs in a wheel or a layer: what the threshold for bloat is about.

Whether kernels are compressed is a flag of the build, and a wheel compresses them again anyway: so
the same kernels shall weigh the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from buildmatrix.inventory.model import Inventory

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
