"""BM204: two distributions wrote the same path, and what lies there is not what both installed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from buildmatrix.inventory.model import SharedPath
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import Image
from buildmatrix.rules.text import count


def check(image: Image) -> Iterator[Finding]:
    """One finding per group of distributions, with the first of the paths."""
    shared = [path for path in image.inventory.shared_paths if not _agree(path)]
    for owners, group in groupby(sorted(shared, key=lambda one: (one.owners, one.path)), _owners):
        paths = [one.path for one in group]
        first = next((path for path in paths if path in _binaries(image)), paths[0])
        names = " and ".join(owner.replace("==", " ") for owner in owners)
        yield finding(
            "BM204",
            image,
            f"{names} both install {count(len(paths), 'path')}, among them {first}: the later one "
            "overwrites the earlier one, and the mix is neither of them",
            severity=_severity(image, owners, paths),
            owner=", ".join(owner.partition("==")[0] for owner in owners),
            path=first,
            chain=(*(image.chain_to(owners[0].partition("==")[0])), first),
            fix=Fix(
                "remove",
                "install only one of them: swap with `replace`, or take one out with `drop`",
                f'[backend.{image.backend}]\ndrop = ["{_wrong_here(image, owners)}"]\n',
            ),
        )


def _wrong_here(image: Image, owners: tuple[str, ...]) -> str:
    """The distribution that this backend misses least: a foreign one, else one for any backend."""
    matches = {present.name: match for present, match in image.matches}

    def rank(name: str) -> int:
        match = matches.get(name)
        if match is not None and image.is_foreign(match):
            return 2
        return 0 if match is not None and match.backend == image.backend else 1

    return max((owner.partition("==")[0] for owner in owners), key=rank)


def _owners(one: SharedPath) -> tuple[str, ...]:
    return one.owners


def _agree(one: SharedPath) -> bool:
    """Whether all owners installed the bytes that are there, as namespace packages do."""
    return one.matches is not None and set(one.matches) == set(one.owners)


def _binaries(image: Image) -> frozenset[str]:
    """Files that are code of the machine, opened or not."""
    closed = (one.path for one in image.inventory.closed if ".so" in one.path.rpartition("/")[2])
    return frozenset((*(binary.path for binary in image.inventory.binaries), *closed))


def _severity(image: Image, owners: tuple[str, ...], paths: list[str]) -> Severity:
    """An error where code is spliced; two `tests/__init__.py` are careless and harmless."""
    known = {present.name for present, match in image.matches if match.vendor is not None}
    if any(owner.partition("==")[0] in known for owner in owners):
        return "error"
    return "error" if _binaries(image).intersection(paths) else "warning"
