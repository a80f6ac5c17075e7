"""BM110: a wheel alone requires, without condition, what belongs to another backend.

Where what is required lies in the same lock or image, BM101 says it of that.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.verdicts import useless_requirements


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per vendor of what is required."""
    if not image.tree.is_single:
        return
    for item in image.inventory.distributions:
        required = [
            (name, match)
            for name, match in useless_requirements(image.tree, item)
            if name not in image.tree.installed
        ]
        for vendor in sorted({match.vendor for _, match in required if match.vendor is not None}):
            of_vendor = [(name, match) for name, match in required if match.vendor == vendor]
            owner = item.owner
            yield finding(
                "BM110",
                image,
                f"{item.name} {item.version} requires {listing(name for name, _ in of_vendor)}, "
                f"which is for {title(of_vendor[0][1].backend, image.catalogue)} and not usable on "
                f"{image.backend}",
                vendor=vendor,
                owner=owner,
                path=item.path,
                chain=(
                    *(image.chain_to(item.name) or (f"{item.name} {item.version}",)),
                    of_vendor[0][0],
                ),
                fix=fix(image, item.name, item.version, "BM110"),
            )
