"""BM202: the image contains a file of the driver, which the host must provide.

The user-space half of the driver must be of the same release as the kernel half. The container
runtime mounts the host's copy into the container; one in the image hides it or is hidden by it.
Forward-compatibility copies have a place of their own, which the catalogue marks, and are not found
here. Stubs for the linker are marked as well, as long as no loader finds them: by a search path, or
once ldconfig runs, which container runtimes do when they mount the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Binary
from buildmatrix.loader.resolution import Needed
from buildmatrix.loader.resolver import resolve_opened
from buildmatrix.phrases import size
from buildmatrix.rules.carried import total
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.shipped import OwnedEvidence, by_owner, finding_in_files
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, foreign or not; one for each stub."""
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
    loadable = {binary.path: binary for binary in image.inventory.loadable}
    for item in image.evidence:
        binary = loadable.get(item.path)
        if item.kind == "bundled" and item.where != "host" and binary is not None:
            yield from _stub(image, item, binary)


def _stub(image: ImageSubject, item: Evidence, binary: Binary) -> Iterator[Finding]:
    """A finding where a loader takes a stub for the driver."""
    file_name = item.path.rpartition("/")[2]
    soname = binary.elf.soname or file_name
    # An exception of the catalogue alone takes it from the host's.
    if item.weight == "strong" or not any(
        match.owned.backend == item.backend and match.owned.entry.where == "host"
        for match in library(soname, None, image.catalogue)
    ):
        return
    folder = item.path.rpartition("/")[0]
    asked = next((needed for needed in image.resolution.needed if needed.path == item.path), None)
    named = {
        found.name: found
        for found in resolve_opened(image.inventory, [(None, soname), (None, file_name)])
        if found.path == item.path
    }
    if asked is not None:
        name, how = asked.name, f"{asked.binary} is led to it by {_way(asked)}"
    elif soname in named:
        name, how = soname, f"{_way(named[soname])} leads to it"
    elif folder in image.inventory.library_folders:
        name, how = soname, "ld.so.conf names its folder, and ldconfig puts it into ld.so.cache"
    elif named:
        name, how = file_name, f"{_way(named[file_name])} leads to it"
    else:
        return
    owned = OwnedEvidence(item.distribution, item.vendor, (replace(item, where="host"),))
    yield finding_in_files(
        "BM202",
        image,
        owned,
        f"{owned.holder} has a stub for the linker where the loader looks for {name}: {how}. "
        "It stands in for the driver that the host provides, and every call of it fails",
        # Only some programs ask for the name that linkers use.
        severity="error" if name == soname else "warning",
        fix=Fix(
            "remove",
            f"take {folder} out of LD_LIBRARY_PATH, ld.so.conf and search paths of files: linkers "
            "find it by -L or LIBRARY_PATH",
            accept("BM202", path=item.path),
        ),
    )


def _way(needed: Needed) -> str:
    """What leads the loader there."""
    match needed.rule:
        case "environment":
            return "LD_LIBRARY_PATH"
        case "cache":
            return "ld.so.cache"
        case "default":
            return "a default folder"
    return "a search path of a file"
