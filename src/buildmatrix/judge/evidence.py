"""Vendor ownership of files and distributions, their sizes, and the files of the base image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import DistributionMatch, Evidence, EvidenceKind
from buildmatrix.facts.elf.search import DEVICE_SECTIONS
from buildmatrix.facts.inventory.model import Binary, Inventory

#: Between the names of a title, but not inside of brackets: `AWS Neuron (Inferentia / Trainium)`.
_FIRST_NAME = re.compile(r" / (?![^(]*\))")


def is_foreign(item: Evidence | DistributionMatch, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a thing belongs to another vendor than `backend` does.

    Things without a vendor are not foreign, and backends of one vendor (oneAPI and OpenVINO) are
    not foreign to each other. Code that a driver compiled for Vulkan belongs to Vulkan, whichever
    vendor's driver it was.
    """
    if item.vendor is None or item.backend == backend:
        return False
    if isinstance(item, Evidence) and item.kind == "device-code" and item.role == backend:
        return False
    return catalogue.vendor_of(backend) != item.vendor


def title(backend: str, catalogue: Catalogue) -> str:
    """The name of a backend in sentences: `NVIDIA CUDA` for `cuda`."""
    entry = catalogue.backends.get(backend)
    return _FIRST_NAME.split(entry.title, maxsplit=1)[0] if entry else backend


# The bloat threshold applies to packed sizes: a build may compress its kernels, and a wheel
# compresses them again, so equal kernels should have equal sizes.


#: Kinds of evidence that represent bytes of a file.
HELD: tuple[EvidenceKind, ...] = ("bundled", "tool", "device-code", "static")

#: Compression ratio of uncompressed device code in a wheel or a layer: 0.13 to 0.42 in the wheels
#: of the corpus. Code that its compiler compressed packs to 0.7 to 0.98, and counts in full.
_PACKED = 0.33


@dataclass(frozen=True, slots=True)
class PackedSizeRange:
    """Bytes of a wheel or a layer that carry the device code of one binary.

    The bounds differ where the binary was not read to its end.
    """

    least: int
    most: int


def measure_device_code(inventory: Inventory) -> Mapping[str, PackedSizeRange]:
    """Return the packed size of each binary that has, or may have, device code.

    A wheel records the packed size of a whole file; for other trees it is an estimate.
    """
    pairs = ((binary.path, _measure_binary(binary)) for binary in inventory.binaries)
    return {path: carried for path, carried in pairs if carried.most}


def _measure_binary(binary: Binary) -> PackedSizeRange:
    elf = binary.elf
    seen = sum(
        code.size * (1 - (1 - _PACKED) * (code.count - code.compressed) / max(code.count, 1))
        for code in elf.device_code
    )
    least = most = round(seen)
    if elf.read is not None:
        # Sections that were not reached are as large as the table of sections says.
        sections = sum(
            section.size
            for section in elf.sections
            if not section.nobits and section.name.startswith(DEVICE_SECTIONS)
        )
        least = max(least, round(_PACKED * sections))
        most = max(least, sections) + elf.unread_data
    if binary.packed is not None:
        least, most = min(least, binary.packed), min(most, binary.packed)
    return PackedSizeRange(least, most)


def total(evidence: Iterable[Evidence]) -> int:
    """Return the bytes that the evidence represents, each file once."""
    sizes: dict[str, int] = {}
    for item in evidence:
        sizes[item.path] = max(item.size, sizes.get(item.path, 0))
    return sum(sizes.values())


# Base image files


_SYSTEM = frozenset({"bin", "etc", "lib", "lib32", "lib64", "opt", "sbin", "usr", "var"})
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def is_base(item: Evidence) -> bool:
    """Return True if it belongs to the system, not to a Python distribution or an application."""
    if item.distribution is not None:
        return False
    parts = item.path.split("/")
    return parts[0] in _SYSTEM and not _PACKAGES.intersection(parts)
