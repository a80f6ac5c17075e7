"""BM601: the base system contains another backend's toolkit."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import count, listing, size
from buildmatrix.rules.carried import total
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.places import is_base
from buildmatrix.rules.shipped import by_owner
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per vendor: system packages, and files of no distribution."""
    for owned in by_owner(item for item in image.foreign if _of_base(item)):
        packages = [item.detail for item in owned.items if item.kind == "declared"]
        files = sorted({item.path for item in owned.items if item.path})
        seen = [
            *([listing(packages)] if packages else []),
            *([f"{count(len(files), 'file')} such as {files[0]}"] if files else []),
        ]
        base = image.target.base.final
        below = f"the base image {base}" if base else "the base of this image"
        yield finding(
            "BM601",
            image,
            f"{below} or its system packages hold "
            f"{owned.title(image)}: {', '.join(seen)} "
            f"({size(total(owned.items))} in files)",
            vendor=owned.vendor,
            path=files[0] if files else None,
            evidence=owned.items,
            chain=(*([base] if base else []), *files[:1]),
            fix=Fix(
                "base",
                f"write a `base` for {image.backend} under [backend.{image.backend}], and look "
                "through `system-packages`",
            ),
        )


def _of_base(item: Evidence) -> bool:
    if item.kind in ("environment", "dlopen", "python-dlopen") or item.distribution is not None:
        return False
    return item.kind == "declared" or (item.where != "host" and is_base(item))
