"""BM402: a distribution has device code, and none of it runs on a GPU that the target declares."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.architectures import support
from buildmatrix.catalogue.files import LINKED_ROLE
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import by_owner, chain_to_file, finding, holder, split_owner
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution: a warning for missing code, a note for portable code.

    Static archives do not count, since no driver loads them, and neither does what tests bring or
    what is text.
    """
    code = (
        item
        for item in image.evidence
        if item.kind == "device-code"
        and item.backend == image.backend
        and item.distribution is not None
        and item.weight == "strong"
        and item.role != LINKED_ROLE
    )
    for owner, vendor, items in by_owner(code):
        if any(not item.architectures or item.path in image.partial for item in items):
            continue  # Code that could not be named, or was not read, may be for any architecture.
        present = sorted({arch for item in items for arch in item.architectures})
        served = {arch: support(arch, present) for arch in image.target.archs}
        missing = [arch for arch, how in served.items() if how == "none"]
        late = [arch for arch, how in served.items() if how == "jit"]
        if not missing and not late:
            continue
        name, _ = split_owner(owner)
        yield finding(
            "BM402",
            image,
            f"{holder(owner)} has no device code for {listing(missing)}: kernels fail there with "
            f"`no kernel image`; it has {listing(present, 8)}"
            if missing
            else f"{holder(owner)} has no binary code for {listing(late)}: the driver compiles its "
            "portable code at the first start, which can take minutes",
            severity="warning" if missing else "note",
            vendor=vendor,
            owner=owner,
            path=items[0].path,
            evidence=items,
            chain=chain_to_file(image, owner, items[0].path),
            fix=Fix(
                "upgrade",
                f"take a build of {name} that covers {listing(missing or late)}, build it from "
                f'source (`no-binary = ["{name}"]`), or take the architecture out of `archs`',
            ),
        )
