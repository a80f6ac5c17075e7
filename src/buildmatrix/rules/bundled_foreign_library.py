"""BM201: a distribution ships a library of another backend, as a file or linked in statically."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import listing
from buildmatrix.rules.carried import total
from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner, foreign_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all the libraries."""
    libraries = (
        item
        for item in image.foreign
        if item.kind in ("bundled", "static") and item.where != "host" and not is_base(item)
    )
    for owned in by_owner(libraries):
        shown = listing(_shown(item) for item in owned.items)
        weight = f" ({owned.weight(image)})" if total(owned.items) else ""
        yield foreign_files(
            "BM201",
            image,
            owned,
            f"{owned.holder} ships what belongs to {owned.title(image)} and is not usable on "
            f"{image.backend}: {shown}{weight}",
        )


def _shown(item: Evidence) -> str:
    """A library by its name; a static one by what it was linked into."""
    if item.kind != "static":
        return item.detail
    library, _, _ = item.detail.partition(" (")
    return f"a static {library} in {item.path.rpartition('/')[2]}"
