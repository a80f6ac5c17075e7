"""BM301: a file links a library of another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import (
    by_owner,
    chain_to_file,
    finding,
    holder,
    split_owner,
)
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.subject import Image
from buildmatrix.rules.text import listing


def check(image: Image) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all files and names."""
    needed = (item for item in image.foreign if item.kind == "needed" and not is_base(item))
    for owner, vendor, items in by_owner(needed):
        name, version = split_owner(owner)
        absent = [item for item in items if (item.path, item.detail) in image.missing]
        first = (absent or list(items))[0]
        yield finding(
            "BM301",
            image,
            f"{holder(owner)} links {listing(item.detail for item in items)} of "
            f"{title(first.backend, image.catalogue)}"
            + (
                f", and {image.here} does not have {listing(item.detail for item in absent)}: "
                f"{first.path} cannot be loaded"
                if absent
                else f"; {first.path} loads it where {image.backend} should be alone"
            ),
            vendor=vendor,
            owner=owner,
            path=first.path,
            evidence=items,
            chain=chain_to_file(image, owner, first.path, first.detail),
            fix=fix(image, name, version, "BM301") if name else None,
        )
