"""BM302: a file links a library that exists nowhere in the image.

Only for root file systems: a folder or a wheel without a C library leaves everything that a system
gives unresolved, and proves nothing. Names of other backends are BM301's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.names import matches_any
from buildmatrix.inventory.loader import Needed
from buildmatrix.rules.findings import chain_to_file, finding, holder, split_owner
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import Image
from buildmatrix.rules.text import listing


def check(image: Image) -> Iterator[Finding]:
    """One finding per distribution, and one for all files that belong to none."""
    if not image.resolution.is_root:
        return
    owners = {binary.path: binary.owner or "" for binary in image.inventory.binaries}
    missing = [one for one in image.resolution.missing if not _expected(image, one)]
    missing.sort(key=lambda one: (owners[one.binary], one.binary, one.name))
    for owner, group in groupby(missing, key=lambda one: owners[one.binary]):
        yield _finding(image, owner or None, list(group))


def _finding(image: Image, owner: str | None, missing: list[Needed]) -> Finding:
    rank = {"error": 0, "warning": 1, "note": 2}
    judged = [(one, _severity(image, owner, one)) for one in missing]
    first, severity = min(judged, key=lambda item: rank[item[1]])
    name, _ = split_owner(owner)
    return finding(
        "BM302",
        image,
        f"{holder(owner)} links {listing(one.name for one in missing)}, which exists nowhere in "
        f"the image and is not given by the host: {first.binary} cannot be loaded"
        f"{_use(image, first)}",
        severity=severity,
        owner=owner,
        path=first.binary,
        chain=chain_to_file(image, owner, first.binary, first.name),
        fix=Fix(
            "rebuild",
            f"install what provides {first.name}"
            + (f", or take {name} in a build for this runtime" if name else "")
            + f"; or, if it is never loaded, allow it: `allow-unresolved = {{ {image.backend} = "
            f'["{first.name}"] }}` under [policy]',
        ),
    )


def _use(image: Image, one: Needed) -> str:
    """Who loads the file, and what happens then."""
    place = next((b.reached_from for b in image.inventory.binaries if b.path == one.binary), None)
    at = f" ({place})" if place else ""
    match image.reach.get(one.binary):
        case "import":
            return f", and an import loads it{at}"
        case "guarded":
            return f"; the import goes on without it{at}"
        case "lazy":
            return "; only a call loads it"
    return ""


def _severity(image: Image, owner: str | None, one: Needed) -> Severity:
    """An error where an import fails for a library of the catalogue.

    What an import survives without, or what only a call or nobody loads, is a warning. Files of no
    distribution are the system's: what they miss is its packagers' choice.
    """
    if owner is None:
        return "note"
    known = bool(library(one.name, None, image.catalogue))
    return "error" if known and image.reach.get(one.binary) == "import" else "warning"


def _expected(image: Image, one: Needed) -> bool:
    """Foreign, injected by the container runtime, or allowed by the policy."""
    owned = library(one.name, None, image.catalogue)
    if any(
        match.owned.vendor is not None and match.owned.backend != image.backend for match in owned
    ):
        return True
    if any(match.owned.entry.where == "host" for match in owned):
        return True
    allowed = image.policy.allow_unresolved
    return matches_any((*allowed.get("*", ()), *allowed.get(image.backend, ())), one.name)
