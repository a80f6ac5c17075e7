"""BM203: a compiler, profiler or device bitcode of another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import listing
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
    """One finding per distribution and vendor, with all the tools."""
    tools = (
        item
        for item in image.foreign
        if item.kind == "tool" and item.where != "host" and not is_base(item)
    )
    for owner, vendor, items in by_owner(tools):
        name, version = split_owner(owner)
        yield finding(
            "BM203",
            image,
            f"{holder(owner)} ships {listing(item.detail for item in items)} "
            f"({weighed(image, owner, items)}): tools of "
            f"{title(items[0].backend, image.catalogue)}, which make nothing that {image.backend} "
            "can run",
            severity=by_verdict(image, owner),
            vendor=vendor,
            owner=owner,
            path=items[0].path,
            evidence=items,
            chain=chain_to_file(image, owner, items[0].path),
            fix=fix(image, name, version, "BM203") if name else None,
        )
