"""Which devices a node class has: what its products are, by the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from buildmatrix.catalogue.format.machines import Product
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.names import matches_any, product_patterns, product_words
from buildmatrix.spec.model import NodeClass

#: What vendors call 80 GB are 80 GiB (7 % more), less up to 8 % that the driver and ECC take.
_MEMORY_TOLERANCE = 0.08
#: Spellings of one architecture: `compute_90`, `sm_90a`, `gfx942:xnack-`.
_CUDA = re.compile(r"(?:sm|compute)_([0-9]+)[af]?")


def product(name: str, backend: str, catalogue: Catalogue) -> Owned[Product] | None:
    """What the catalogue says of a device; `name` as its vendor's tools or a label spell it.

    Of two backends that have such a device (`cuda` and `vulkan`) the one that is asked for is
    preferred.
    """
    entries = catalogue.products.find(product_words(name))
    own = (owned for owned in entries if owned.backend == backend)
    return next(own, entries[0] if entries else None)


def is_product(globs: Iterable[str], name: str) -> bool:
    """Whether a device is one that globs of names mean."""
    words = product_words(name)
    return any(matches_any(product_patterns(glob), words) for glob in globs)


def architectures(node: NodeClass, catalogue: Catalogue) -> tuple[str, ...]:
    """The GPU architectures of a node class: its `archs`, then those of its `products`, each once.

    A product that the catalogue does not know adds none; such a specification is not loaded
    (`spec.load`).
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
    """Whose devices a node class has, of a backend that runs on those of several vendors.

    Empty where neither products nor architectures say so.
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
    """The architecture of a device for which code is: without what selects features of it."""
    match = _CUDA.fullmatch(arch)
    return f"sm_{match[1]}" if match else arch.partition(":")[0]


def same_memory(stated: int, seen: int) -> bool:
    """Whether two amounts of memory may be those of one device."""
    return abs(seen / stated - 1) <= _MEMORY_TOLERANCE
