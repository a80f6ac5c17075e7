"""BM501: a file knows the name of a library of another backend and can load it at run time.

A name alone costs nothing and breaks nothing, so this is a note. What breaks an import is BM502's.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import by_owner, chain_to_file, finding, holder
from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One note per distribution and vendor; parts of other text do not count."""
    failures = (
        verdict.failure for verdict in image.verdicts.values() if verdict.failure is not None
    )
    fails = {(item.path, item.detail) for failure in failures for item in failure.evidence}
    names = (
        item
        for item in image.foreign
        if item.kind in ("dlopen", "python-dlopen")
        and item.weight == "strong"
        and (item.path, item.detail) not in fails
        and not is_base(item)
    )
    for owner, vendor, items in by_owner(names):
        yield finding(
            "BM501",
            image,
            f"{holder(owner)} can load {listing(item.detail for item in items)} of "
            f"{title(items[0].backend, image.catalogue)} at run time; without that it is "
            "only a name",
            vendor=vendor,
            owner=owner,
            path=items[0].path,
            evidence=items,
            chain=chain_to_file(image, owner, items[0].path, items[0].detail),
        )
