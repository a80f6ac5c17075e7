"""BM204: two distributions installed different files at the same path.

How bad that is follows from what breaks. Code of the machine from two builds is an error: one half
calls into the other. Two builds of one version, none of them a vendor's, are each whole when they
come last: a warning, as for Python code. What no import reaches is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from buildmatrix.inventory.model import SharedPath
from buildmatrix.phrases import count
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per group of distributions, with the first of the paths."""
    shared = [path for path in image.inventory.shared_paths if not _agree(path)]
    for owners, group in groupby(
        sorted(shared, key=lambda shared_path: (shared_path.owners, shared_path.path)),
        key=lambda shared_path: shared_path.owners,
    ):
        paths = [shared_path.path for shared_path in group]
        first = next(iter(_binaries(image, paths)), paths[0])
        names = " and ".join(owner.replace("==", " ") for owner in owners)
        yield finding(
            "BM204",
            image,
            f"{names} both install {count(len(paths), 'path')}, among them {first}: "
            + _outcome(image, owners, paths),
            severity=_severity(image, owners, paths),
            owner=", ".join(owner.partition("==")[0] for owner in owners),
            path=first,
            chain=(*(image.chain_to(owners[0].partition("==")[0])), first),
            fix=Fix(
                "remove",
                f"take {_wrong_here(image, owners)} out: write "
                f'`drop = ["{_wrong_here(image, owners)}"]` under [backend.{image.backend}]; or '
                "keep that and take out the other",
                f'[backend.{image.backend}]\ndrop = ["{_wrong_here(image, owners)}"]\n',
            ),
        )


def _wrong_here(image: ImageSubject, owners: tuple[str, ...]) -> str:
    """The distribution that this backend misses least: a foreign one, else one for any backend."""
    matches = {present.name: match for present, match in image.matches}

    def rank(name: str) -> int:
        match = matches.get(name)
        if match is not None and image.is_foreign(match):
            return 2
        return 0 if match is not None and match.backend == image.backend else 1

    return max((owner.partition("==")[0] for owner in owners), key=rank)


def _agree(shared_path: SharedPath) -> bool:
    """Return True if all owners installed the bytes that are there, as namespace packages do.

    Files that pip compiles (`__pycache__`) are recorded without a hash: their source decides.
    """
    if not shared_path.matches and "/__pycache__/" in shared_path.path:
        return True
    return shared_path.matches is not None and set(shared_path.matches) == set(shared_path.owners)


def _outcome(image: ImageSubject, owners: tuple[str, ...], paths: list[str]) -> str:
    if _is_one_release(image, owners) and _binaries(image, paths):
        return "both are of one release, and whichever is installed last decides which build runs"
    return "the later one overwrites the earlier one, and the mix is neither of them"


def _binaries(image: ImageSubject, paths: list[str]) -> list[str]:
    """Those of the paths that are code of the machine, opened or not."""
    opened = {binary.path for binary in image.inventory.binaries}
    return [path for path in paths if path in opened or ".so" in path.rpartition("/")[2]]


def _severity(image: ImageSubject, owners: tuple[str, ...], paths: list[str]) -> Severity:
    if _binaries(image, paths):
        return "warning" if _is_one_release(image, owners) else "error"
    return "note" if all(_is_stray(image, owners, path) for path in paths) else "warning"


def _is_one_release(image: ImageSubject, owners: tuple[str, ...]) -> bool:
    """Return True if the owners are builds of one version of one project without a vendor."""
    vendors = {present.name for present, match in image.matches if match.vendor is not None}
    names = {owner.partition("==")[0] for owner in owners}
    projects = {name.partition("-")[0] for name in names}
    versions = {owner.partition("==")[2] for owner in owners}
    return len(projects) == len(versions) == 1 and names.isdisjoint(vendors)


def _is_stray(image: ImageSubject, owners: tuple[str, ...], path: str) -> bool:
    """Return True if a path is a file beside the packages that nothing imports.

    Such files are build scripts or licenses that got into a wheel by mistake; a module is imported
    by the name of its distribution, or by a statement of another one.
    """
    relative = path.rpartition("-packages/")[2]
    module, dot, suffix = relative.rpartition(".")
    if "/" in relative:
        return False
    if not dot or suffix not in ("py", "pyc"):
        return True
    names = {owner.partition("==")[0].replace("-", "_") for owner in owners}
    return module not in names | image.imported_modules
