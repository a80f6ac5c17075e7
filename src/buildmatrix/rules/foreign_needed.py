"""BM301: a file links a library of another backend.

As bad as the distribution's verdict: an error where that library is there and is loaded, or where
an import fails without it. A file that no import needs (one plugin of many, chosen at run time) is
a warning where the library is absent: then nothing of the other backend can come in by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.failing import LOADER
from buildmatrix.rules.findings import split_owner
from buildmatrix.rules.fixes import accept, fix
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner, by_verdict, finding_in_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all files and names."""
    needed = (
        item
        for item in image.foreign
        # Names from a string table leave a verdict open; they prove nothing.
        if item.kind == "needed"
        and item.path not in image.unlinked
        and not is_base(item)
        and (item.role != LOADER or (item.path, item.detail) in image.missing)
    )
    for owned in by_owner(needed):
        absent = [item for item in owned.items if (item.path, item.detail) in image.missing]
        # An import that was not read may survive the failure.
        imported = [
            item
            for item in absent
            if image.reach.get(item.path) == "import"
            and owned.owner not in image.tree.unread_python
        ]
        first = (imported or absent or owned.items)[0]
        verdict = image.verdicts.get(owned.owner or "")
        fails = verdict is not None and verdict.failure is not None
        harmless = (
            owned.owner is not None and not (imported or fails) and len(absent) == len(owned.items)
        )
        yield finding_in_files(
            "BM301",
            image,
            owned,
            f"{owned.holder} links {owned.details} of "
            f"{title(first.backend, image.catalogue)}"
            + (
                f", and {image.noun} does not have {listing(item.detail for item in absent)}: "
                f"{first.path} cannot be loaded" + (", and no import needs it" if harmless else "")
                if absent
                else f"; {first.path} loads it where {image.backend} should be alone"
            ),
            severity=by_verdict(image, owned.owner) or ("warning" if harmless else None),
            first=first,
            is_named=True,
            fix=_fix(image, owned.owner, harmless),
        )


def _fix(image: ImageSubject, owner: str | None, harmless: bool) -> Fix | None:
    """Return the catalogue's fix; a custom build is too much for a file that nothing needs."""
    name, version = split_owner(owner)
    if name is None:
        return None
    usual = fix(image, name, version, "BM301")
    if not harmless or usual.kind != "rebuild":
        return usual
    return Fix(
        "waive",
        f"nothing has to be done as long as {name} is not asked for that file; accept it with a "
        "[[waive]]",
        accept("BM301", distribution=name),
    )
