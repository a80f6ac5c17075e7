"""BM402: a distribution has device code, and none of it runs on a GPU that the target declares."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.architectures import support
from buildmatrix.catalogue.files import LINKED_ROLE
from buildmatrix.phrases import listing
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.shipped import by_owner, finding_in_files
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
    for owned in by_owner(code):
        if any(not item.architectures or item.path in image.partial for item in owned.items):
            continue  # Code that could not be named, or was not read, may be for any architecture.
        present = sorted({arch for item in owned.items for arch in item.architectures})
        served = {arch: support(arch, present) for arch in image.target.archs}
        missing = [arch for arch, how in served.items() if how == "none"]
        late = [arch for arch, how in served.items() if how == "jit"]
        if not missing and not late:
            continue
        yield finding_in_files(
            "BM402",
            image,
            owned,
            f"{owned.holder} has no device code for {listing(missing)}: kernels fail there with "
            f"`no kernel image`; it has {listing(present, 8)}"
            if missing
            else f"{owned.holder} has no binary code for {listing(late)}: the driver compiles its "
            "portable code at the first start, which can take minutes",
            severity="warning" if missing else "note",
            fix=Fix(
                "upgrade",
                f"take a build of {owned.name} that covers {listing(missing or late)}, build it "
                f'from source (`no-binary = ["{owned.name}"]`), or take the architecture out of '
                "`archs`",
            ),
        )
