"""BM202: the image contains a file of the driver, which the host must provide.

The user-space half of the driver must be of the same release as the kernel half. The container
runtime mounts the host's copy into the container; one in the image hides it or is hidden by it.
Forward-compatibility copies and stubs for the linker have a place of their own: the catalogue
marks them, and they are not found here.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import size
from buildmatrix.rules.carried import total
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.shipped import by_owner, finding_in_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, foreign or not."""
    drivers = (
        item
        for item in image.evidence
        if item.where == "host" and item.kind in ("bundled", "tool") and item.path
    )
    for owned in by_owner(drivers):
        path = owned.items[0].path
        yield finding_in_files(
            "BM202",
            image,
            owned,
            f"{owned.holder} ships {owned.details} "
            f"({size(total(owned.items))}): the driver's user-space half must come from the host, "
            "or it does not fit the kernel's half",
            fix=Fix(
                "remove",
                f"delete {path} in the step that brings it, or remove what installs it",
                accept("BM202", path=path),
            ),
        )
