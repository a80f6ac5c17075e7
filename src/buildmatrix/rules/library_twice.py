"""BM304: the same libraries of the backend come from the base image and again from wheels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle, library_names
from buildmatrix.phrases import count, listing, size
from buildmatrix.rules.belonging import title
from buildmatrix.rules.carried import total
from buildmatrix.rules.findings import finding
from buildmatrix.rules.framework_against_libraries import in_front
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.places import is_base
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding: all libraries of this backend that are there from both sides."""
    base: dict[str, list[Evidence]] = {}
    wheels: dict[str, list[Evidence]] = {}
    for item in image.evidence:
        if item.kind != "bundled" or item.weight != "strong" or item.backend != image.backend:
            continue
        if item.where == "host":
            continue  # A stub for the linker, or what BM202 is about.
        if item.distribution is not None:
            wheels.setdefault(_library(item), []).append(item)
        elif is_base(item):
            base.setdefault(_library(item), []).append(item)
    twice = sorted((base.keys() & wheels.keys()) - _told(image, base))
    below = [item for name in twice for item in base[name]]
    above = [item for name in twice for item in wheels[name]]
    wasted_bytes = min(total(below), total(above))
    if wasted_bytes <= image.policy.bloat_threshold:
        return
    below.sort(key=lambda item: (-item.size, item.path))
    above.sort(key=lambda item: (-item.size, item.path))
    owners = listing(
        str(item.distribution).replace("==", " ") for item in above if item.distribution
    )
    yield finding(
        "BM304",
        image,
        f"{count(len(twice), 'library').replace('librarys', 'libraries')} of "
        f"{title(image.backend, image.catalogue)} are in the image twice: {size(total(below))} "
        "from the "
        f"base image ({listing(item.path for item in below)}) and {size(total(above))} from "
        f"{owners}; a process loads one of each, so {size(wasted_bytes)} are wasted",
        vendor=below[0].vendor,
        path=below[0].path,
        evidence=(*below, *above),
        chain=tuple(filter(None, (image.target.base.final, below[0].path, above[0].path))),
        fix=Fix(
            "base",
            "take a base image without the toolkit's libraries (the `base` flavor, or a plain "
            "Python image): the wheels bring what they need",
        ),
    )


def _told(image: ImageSubject, base: Mapping[str, Sequence[Evidence]]) -> frozenset[str]:
    """Libraries of the base that wheels are led to, and that do not do: BM305 and BM706 say so."""
    bound = {item.present.path for item in in_front(image)} | {
        path for item in image.unbound for path in item.libraries
    }
    return frozenset(
        name for name, items in base.items() if any(item.path in bound for item in items)
    )


def _library(item: Evidence) -> str:
    """Return the library without its version; two lines of it are also found by BM303."""
    name = demangle(item.path.rpartition("/")[2])
    return list(library_names(name))[-1]
