"""BM302: a file links a library that exists nowhere in the image.

A folder or a wheel without a C library leaves everything that a system gives unresolved, and proves
nothing: there only those names count that belong to another toolkit line of this backend, which no
base image of the target's line has; and those of which the set itself has another major version,
in a distribution that is there for the one that links it. Names of other backends are BM301's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.names import demangle, matches_any, version_of
from buildmatrix.catalogue.requirements import requirements
from buildmatrix.inventory.model import Binary, ClosedFile
from buildmatrix.loader.process import file_name
from buildmatrix.loader.resolution import Needed
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.fixes import quoted
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.shipped import holder
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution, and one for all files that belong to none."""
    is_root = image.resolution.is_root
    linked = image.linked
    owners = {binary.path: binary.owner or "" for binary in linked.inventory.binaries}
    majors = _OtherMajors(image)
    # What only tables show of single libraries settles no verdict.
    known = set(image.resolution.missing)
    missing = [
        needed
        for needed in linked.resolution.missing
        if (
            (needed in known and (is_root or image.tree.is_other_line(needed.name)))
            or (not is_root and majors.holder(owners[needed.binary], needed.name))
        )
        and not _expected(image, needed)
        and image.backend not in image.tree.supplied.get(owners[needed.binary], ())
    ]
    missing.sort(key=lambda needed: (owners[needed.binary], needed.binary, needed.name))
    for owner, group in groupby(missing, key=lambda needed: owners[needed.binary]):
        yield _finding(image, owner or None, list(group), majors)


class _OtherMajors:
    """Libraries of which distributions of the set have another major version.

    Counted are those of distributions that the one in question requires, and vendors' libraries of
    this backend, which have distributions of their own. Copies under names of their own are
    nobody else's.
    """

    def __init__(self, image: ImageSubject) -> None:
        self._catalogue = image.catalogue
        self._vendors = {
            present.owner
            for present, match in image.matches
            if match.kind == "native" and match.backend == image.backend
        }
        #: Name without its version → file name → owner.
        self._names: dict[str, dict[str, str]] = {}
        inventory = image.linked.inventory
        files: tuple[Binary | ClosedFile, ...] = (*inventory.loadable, *inventory.closed)
        for file in files:
            name = file_name(file.path)
            stem, separator, _ = name.rpartition(".so.")
            if separator and file.owner and name == demangle(name):
                self._names.setdefault(stem, {})[name] = file.owner
        self._requires: dict[str, set[str]] = {}
        for item in image.inventory.distributions:
            self._requires.setdefault(item.owner, set()).update(
                required.name for required in requirements(item, image.catalogue) if required.active
            )

    def holder(self, owner: str, name: str) -> tuple[str, str] | None:
        """Another version of the library `name`, which `owner` links, and whose it is."""
        stem, separator, version = name.rpartition(".so.")
        major = version.partition(".")[0]
        if not separator or not major.isdecimal():
            return None
        for other, holds in sorted(self._names.get(stem, {}).items()):
            other_major = version_of(other).partition(".")[0]
            if (
                holds != owner
                and other_major.isdecimal()
                and int(other_major) != int(major)
                and (
                    holds in self._vendors
                    or holds.partition("==")[0] in self._requires.get(owner, ())
                )
            ):
                return other, holds
        return None


def _finding(
    image: ImageSubject, owner: str | None, missing: list[Needed], majors: _OtherMajors
) -> Finding:
    rank = {"error": 0, "warning": 1, "note": 2}
    judged = [(needed, _severity(image, owner, needed)) for needed in missing]
    first, severity = min(judged, key=lambda item: rank[item[1]])
    other = majors.holder(owner or "", first.name)
    return finding(
        "BM302",
        image,
        f"{holder(owner)} links {listing(needed.name for needed in missing)}, which is not in "
        f"{image.noun} and is not provided by the host: {first.binary} cannot be loaded"
        f"{_use(image, first)}{_lines(image, first)}{_other(other)}",
        severity=severity,
        owner=owner,
        path=first.binary,
        chain=chain_to_file(image, owner, first.binary, first.name),
        fix=_fix(image, owner, first, missing),
    )


def _other(other: tuple[str, str] | None) -> str:
    """Which version of the library is there instead."""
    return f". {other[1].replace('==', ' ')} has {other[0]}" if other is not None else ""


def _lines(image: ImageSubject, needed: Needed) -> str:
    """Describe the role of the target's toolkit line."""
    if not image.tree.is_other_line(needed.name):
        return ""
    backend = title(image.backend, image.catalogue)
    return (
        f". {needed.name} is of {backend} {_lines_of(image, needed)}, and this target is for "
        + (f"{backend} {image.line}")
    )


def _lines_of(image: ImageSubject, needed: Needed) -> str:
    library_matches = library(needed.name, None, image.catalogue)
    return " or ".join(
        line
        for match in library_matches
        if match.owned.backend == image.backend
        for line in match.lines
    )


def _fix(image: ImageSubject, owner: str | None, item: Needed, missing: Sequence[Needed]) -> Fix:
    name, _ = split_owner(owner)
    if image.tree.is_other_line(item.name):
        backend = title(image.backend, image.catalogue)
        return Fix(
            "pin",
            f"take a release of {name or item.binary} that was built for {backend} {image.line}, "
            f"or make the target for {backend} {_lines_of(image, item)}",
        )
    names = sorted({needed.name for needed in missing})
    entry = f"allow-unresolved = {{ {image.backend} = [{', '.join(map(quoted, names))}] }}"
    subject, pronoun = ("it is", "it") if len(names) == 1 else ("they are", "them")
    return Fix(
        "rebuild",
        f"install what provides {', '.join(names)}"
        + (f", or take {name} in a build for this runtime" if name else "")
        + f"; or, if {subject} never loaded, allow {pronoun}: `{entry}` under [policy]",
        f"[policy]\n{entry}\n",
    )


def _use(image: ImageSubject, needed: Needed) -> str:
    """Who loads the file, and what happens then."""
    place = next(
        (b.reached_from for b in image.inventory.binaries if b.path == needed.binary), None
    )
    at = f" ({place})" if place else ""
    match image.reach.get(needed.binary):
        case "import":
            return f", and an import loads it{at}"
        case "guarded":
            return f"; the import goes on without it{at}"
        case "lazy":
            return "; only a call loads it"
    return ""


def _severity(image: ImageSubject, owner: str | None, needed: Needed) -> Severity:
    """Return an error if an import fails for a library of the catalogue.

    What an import survives without, or what only a call or nobody loads, is a warning. Files of no
    distribution are the system's: what they miss is its packagers' choice.
    """
    if owner is None:
        return "note"
    verdict = image.verdicts.get(owner)
    failure = verdict.failure if verdict is not None else None
    if failure is not None and (failure.path, failure.name) == (needed.binary, needed.name):
        return "error"
    # What was not read may survive it.
    is_open = verdict is not None and verdict.is_open
    in_catalogue = bool(library(needed.name, None, image.catalogue)) and not is_open
    return "error" if in_catalogue and image.reach.get(needed.binary) == "import" else "warning"


def _expected(image: ImageSubject, needed: Needed) -> bool:
    """Foreign, injected by the container runtime, or allowed by the policy."""
    owned = library(needed.name, None, image.catalogue)
    vendor = image.own_vendor
    # What draws, such as libGL, belongs to no accelerator, and BM301 says nothing of it.
    if any(
        match.owned.vendor not in (None, vendor) and match.owned.entry.role != "graphics"
        for match in owned
    ):
        return True
    if any(match.owned.entry.where == "host" for match in owned):
        return True
    allowed = image.policy.allow_unresolved
    return matches_any((*allowed.get("*", ()), *allowed.get(image.backend, ())), needed.name)
