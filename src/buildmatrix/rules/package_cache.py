"""BM605: a package manager's cache, or package files that were not installed, ship in the image.

Nothing in them is judged as installed. Another vendor's files in them are unused all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.leftovers import Leftover
from buildmatrix.catalogue.model import Evidence
from buildmatrix.phrases import count, listing, size
from buildmatrix.rules.artifact_for_other_node_class import unfit_caches
from buildmatrix.rules.belonging import title
from buildmatrix.rules.deleted_bytes import layer_name
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per cache, and per folder with package files."""
    unfit = unfit_caches(image)
    for leftover in image.leftovers:
        foreign = tuple(
            item
            for item in leftover.evidence
            # What has another name outside is installed, and its bytes are not the cache's.
            if item.size and item.weight == "strong" and image.is_foreign(item)
        )
        is_large = leftover.size > image.policy.bloat_threshold
        if foreign or (is_large and leftover.path not in unfit):
            yield _finding(image, leftover, foreign)


def _finding(image: ImageSubject, leftover: Leftover, foreign: tuple[Evidence, ...]) -> Finding:
    holds = ""
    if foreign:
        first = [item for item in foreign if item.vendor == foreign[0].vendor]
        names = listing(dict.fromkeys(item.detail for item in first))
        holds = f", and holds what belongs to {title(first[0].backend, image.catalogue)} ({names})"
    left_by = f"; {layer_name(image, leftover.layer)} left it" if leftover.layer is not None else ""
    return finding(
        "BM605",
        image,
        f"{_description(leftover)}{holds}: nothing of it is installed, and every pull "
        f"carries it{left_by}",
        severity=_severity(leftover, foreign),
        vendor=foreign[0].vendor if foreign else None,
        path=leftover.path,
        evidence=foreign,
        chain=(
            *((layer_name(image, leftover.layer),) if leftover.layer is not None else ()),
            leftover.path,
        ),
        fix=Fix("rebuild", leftover.advice),
        by_path=True,
    )


def _description(leftover: Leftover) -> str:
    """`root/.cache/uv (1.2 GB, 340 files) is uv's cache`"""
    where = leftover.path or "/"
    if leftover.title:
        return (
            f"{where} ({size(leftover.size)}, {count(leftover.files, 'file')}) is {leftover.title}"
        )
    return f"{where} has {count(leftover.files, 'package file')} ({size(leftover.size)})"


def _severity(leftover: Leftover, foreign: tuple[Evidence, ...]) -> Severity:
    """An error for another vendor's bytes; models, and kernels for this backend, may be meant."""
    if foreign:
        return "error"
    return "warning" if leftover.kind == "packages" else "note"
