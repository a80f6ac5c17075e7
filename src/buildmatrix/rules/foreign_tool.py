"""BM203: a compiler, profiler or device bitcode of another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner, foreign_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all the tools."""
    tools = (
        item
        for item in image.foreign
        if item.kind == "tool" and item.where != "host" and not is_base(item)
    )
    for owned in by_owner(tools):
        yield foreign_files(
            "BM203",
            image,
            owned,
            f"{owned.holder} ships {owned.details} "
            f"({owned.weight(image)}): tools of {owned.title(image)}, which make nothing that "
            f"{image.backend} can run",
        )
