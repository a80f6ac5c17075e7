"""BM401: a file contains device code for another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count, listing
from buildmatrix.rules.model import Finding
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner, foreign_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all files."""
    code = (item for item in image.foreign if item.kind == "device-code" and not is_base(item))
    for owned in by_owner(code):
        architectures = sorted({arch for item in owned.items for arch in item.architectures})
        files = {item.path for item in owned.items}
        where = owned.items[0].path if len(files) == 1 else count(len(files), "file")
        named = _named(architectures, bool(files & image.partial))
        yield foreign_files(
            "BM401",
            image,
            owned,
            f"{owned.holder} holds {owned.weight(image)} of device code for {owned.title(image)}"
            f"{named} in {where}, which {image.backend} cannot run",
        )


def _named(architectures: list[str], in_part: bool) -> str:
    """The architectures; where files were read in part, with what would show the others."""
    if not in_part:
        return f" ({listing(architectures)})" if architectures else ""
    named = f"{listing(architectures, 12)}; " if architectures else ""
    return f" ({named}the list may be incomplete, `audit --deep` reads the rest)"
