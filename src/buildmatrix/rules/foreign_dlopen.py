"""BM501: a file knows the name of a library of another backend and can load it at run time.

A name alone costs nothing and breaks nothing, so this is a note. What breaks an import is BM502's.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner, finding_in_files
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
    for owned in by_owner(names):
        yield finding_in_files(
            "BM501",
            image,
            owned,
            f"{owned.holder} can load {owned.details} of "
            f"{owned.title(image)} at run time; without that it is only a name",
            is_named=True,
        )
