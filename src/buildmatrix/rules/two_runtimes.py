"""BM303: the runtime library of one vendor is there in two toolkit lines.

Each keeps its own state of the device; a process that loads both gets crashes that no message
explains. Distributions for another line are BM103's; this rule looks at the files.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.catalogue.runtimes import toolkit_line
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.fixes import line_fix
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding: this backend's runtime library in more than one line."""
    runtimes = [
        item
        for item in image.evidence
        if item.kind == "bundled"
        and item.role == "runtime"
        and item.weight == "strong"
        and item.backend == image.backend
        and item.toolkit is not None
    ]
    lines = sorted({item.toolkit for item in runtimes if item.toolkit is not None})
    if len(lines) < 2:
        return
    expected = toolkit_line(image.target.runtime) or lines[-1]
    odd = [item for item in runtimes if item.toolkit != expected]
    odd.sort(key=lambda item: (_is_private(item), item.path))
    first = odd[0]
    yield finding(
        "BM303",
        image,
        f"{title(image.backend, image.catalogue)} lines {' and '.join(lines)} are in the image "
        "side by side: "
        f"{listing(item.path for item in odd)} beside line {expected}; a process that loads both "
        "crashes or computes on the wrong device",
        severity="warning" if _is_private(first) else "error",
        vendor=first.vendor,
        owner=first.distribution,
        path=first.path,
        evidence=tuple(sorted(runtimes, key=lambda item: (item.toolkit or "", item.path))),
        chain=chain_to_file(image, first.distribution, first.path),
        fix=_fix(image, first, expected),
    )


def _is_private(item: Evidence) -> bool:
    """A copy under a name of its own, which no other file can be bound to."""
    name = item.path.rpartition("/")[2]
    return demangle(name) != name


def _fix(image: ImageSubject, item: Evidence, expected: str) -> Fix:
    name, version = split_owner(item.distribution)
    if name is not None and version is not None:
        return line_fix(image, name, version, expected)
    return Fix("base", f"take a base image of line {expected}, or delete {item.path} in it")
