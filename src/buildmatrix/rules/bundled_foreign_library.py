"""BM201: a distribution ships a library of another backend, as a file or linked in statically."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.carried import total
from buildmatrix.rules.findings import (
    by_owner,
    by_verdict,
    chain_to_file,
    finding,
    holder,
    split_owner,
    weighed,
)
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all the libraries."""
    libraries = (
        item
        for item in image.foreign
        if item.kind in ("bundled", "static") and item.where != "host" and not is_base(item)
    )
    for owner, vendor, items in by_owner(libraries):
        name, version = split_owner(owner)
        shown = listing(_shown(item) for item in items)
        bytes_there = f" ({weighed(image, owner, items)})" if total(items) else ""
        yield finding(
            "BM201",
            image,
            f"{holder(owner)} ships what belongs to {title(items[0].backend, image.catalogue)} and "
            f"is of no use on {image.backend}: {shown}{bytes_there}",
            severity=by_verdict(image, owner),
            vendor=vendor,
            owner=owner,
            path=items[0].path,
            evidence=items,
            chain=chain_to_file(image, owner, items[0].path),
            fix=fix(image, name, version, "BM201") if name else None,
        )


def _shown(item: Evidence) -> str:
    """A library by its name; a static one by what it was linked into."""
    if item.kind != "static":
        return item.detail
    library, _, _ = item.detail.partition(" (")
    return f"a static {library} in {item.path.rpartition('/')[2]}"
