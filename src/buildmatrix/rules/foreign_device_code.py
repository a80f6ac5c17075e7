"""BM401: a file holds device code for another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count, listing
from buildmatrix.rules.belonging import title
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
    """One finding per distribution and vendor, with all files."""
    code = (item for item in image.foreign if item.kind == "device-code" and not is_base(item))
    for owner, vendor, items in by_owner(code):
        name, version = split_owner(owner)
        architectures = sorted({arch for item in items for arch in item.architectures})
        files = {item.path for item in items}
        where = items[0].path if len(files) == 1 else count(len(files), "file")
        in_part = bool(files & image.partial)
        yield finding(
            "BM401",
            image,
            f"{holder(owner)} holds {weighed(image, owner, items)} of device "
            f"code for {title(items[0].backend, image.catalogue)}{_named(architectures, in_part)} "
            f"in {where}, which {image.backend} cannot run",
            severity=by_verdict(image, owner),
            vendor=vendor,
            owner=owner,
            path=items[0].path,
            evidence=items,
            chain=chain_to_file(image, owner, items[0].path),
            fix=fix(image, name, version, "BM401") if name else None,
        )


def _named(architectures: list[str], in_part: bool) -> str:
    """The architectures; where files were read in part, with what would tell the others."""
    if not in_part:
        return f" ({listing(architectures)})" if architectures else ""
    named = f"{listing(architectures, 12)}; " if architectures else ""
    return f" ({named}the list may be incomplete, `audit --deep` reads the rest)"
