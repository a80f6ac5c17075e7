"""Vendor libraries of a side, with versions, and changes to them.

No source always has the version of a library, so the most exact one wins: the version of the
vendor's own distribution that ships it, then the longer of the versions in its SONAME and in its
file name, then the toolkit of the SONAME in the catalogue. The result names the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from buildmatrix.catalogue.match import FOLDER_ROLE, PACKAGE_ROLE
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle, version_of
from buildmatrix.commands.diff.model import Library
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports.diff.model import Change, LibraryChange, VersionOf

#: Paths named in one change.
_PATHS = 20


def find_libraries(inventory: Inventory, evidence: Iterable[Evidence]) -> tuple[Library, ...]:
    """Return the copies of vendor libraries in a tree, including static ones; sorted."""
    seen = tuple(evidence)
    sonames = {binary.path: binary.elf.soname or "" for binary in inventory.binaries}
    theirs: Collection[tuple[str | None, str]] = {
        (item.distribution, item.backend)
        for item in seen
        if item.kind == "declared"
        and item.role == PACKAGE_ROLE
        and item.distribution
        # A build for a vendor's devices (torchvision, torch+cu128) has a version of its own.
        and item.weight == "strong"
        and "+" not in item.distribution
    }
    copies = dict.fromkeys(
        _make_library(item, sonames.get(item.path, ""), theirs)
        for item in seen
        if item.kind == "static" or (item.kind == "bundled" and item.role != FOLDER_ROLE)
    )
    return tuple(
        sorted(
            copies,
            key=lambda library: (library.backend, library.name, library.path, library.is_static),
        )
    )


def _make_library(
    item: Evidence, soname: str, theirs: Collection[tuple[str | None, str]]
) -> Library:
    owner, _, owner_version = (item.distribution or "").partition("==")
    if item.kind == "static":
        return Library(
            name=item.detail.partition(" (")[0],
            vendor=item.vendor,
            backend=item.backend,
            role=item.role,
            path=item.path,
            version=item.toolkit or "",
            version_of="toolkit" if item.toolkit else "",
            toolkit=item.toolkit or "",
            distribution=owner,
            is_static=True,
        )
    file = demangle(item.path.rpartition("/")[2])
    versions: list[tuple[str, VersionOf]] = [
        (version_of(soname), "soname"),
        (version_of(file), "file name"),
    ]
    version, source = max(versions, key=lambda pair: len(pair[0].split(".")) if pair[0] else 0)
    if (item.distribution, item.backend) in theirs and owner_version:
        version, source = owner_version, "distribution"
    elif not version and item.toolkit:
        version, source = item.toolkit, "toolkit"
    return Library(
        name=_library_stem(demangle(soname) or file),
        vendor=item.vendor,
        backend=item.backend,
        role=item.role,
        path=item.path,
        version=version,
        version_of=source if version else "",
        major=(version_of(soname) or version_of(file)).partition(".")[0],
        toolkit=item.toolkit or "",
        distribution=owner,
        size=item.size,
    )


def _library_stem(name: str) -> str:
    """Return `libcudnn_ops` for `libcudnn_ops.so.9`."""
    return name.partition(".so")[0].removesuffix(".a")


_Key = tuple[str, str, bool]


def compare_libraries(
    before: Sequence[Library], after: Sequence[Library]
) -> tuple[LibraryChange, ...]:
    """Return added, removed and changed libraries, by backend and name."""
    old, new = _group(before), _group(after)
    changes = (_compare(key, old.get(key, []), new.get(key, [])) for key in sorted({*old, *new}))
    return tuple(change for change in changes if change is not None)


def _group(copies: Iterable[Library]) -> Mapping[_Key, list[Library]]:
    by_key: dict[_Key, list[Library]] = {}
    for library in copies:
        by_key.setdefault((library.backend, library.name, library.is_static), []).append(library)
    return by_key


def _compare(key: _Key, old: Sequence[Library], new: Sequence[Library]) -> LibraryChange | None:
    # Copies are identified by version and owner; the path may depend on the Python.
    copies = [
        Counter((library.version, library.distribution) for library in side) for side in (old, new)
    ]
    major = _compare_majors(old, new) if old and new else ""
    if copies[0] == copies[1] and not major:
        return None
    change: Change = "changed" if old and new else "removed" if old else "added"
    latest = new or old
    _, name, is_static = key
    first = latest[0]
    return LibraryChange(
        change,
        f"{name} (static)" if is_static else name,
        first.vendor,
        first.backend,
        first.role,
        tuple(sorted(library.version for library in old)),
        tuple(sorted(library.version for library in new)),
        first.version_of,
        tuple(sorted({library.distribution for library in latest if library.distribution})),
        major,
        sum(library.size for library in old),
        sum(library.size for library in new),
        tuple(sorted(library.path for library in latest))[:_PATHS],
    )


def _compare_majors(old: Sequence[Library], new: Sequence[Library]) -> str:
    """Return `8 -> 9` if a copy has a major version that no copy had before."""
    numbers: tuple[Callable[[Library], str], ...] = (
        lambda library: library.major,
        lambda library: library.toolkit,
        lambda library: library.version.partition(".")[0],
    )
    for number in numbers:
        before, after = (set(filter(None, map(number, side))) for side in (old, new))
        if before and after:
            return f"{_join(before)} -> {_join(after)}" if after - before else ""
    return ""


def _join(numbers: Iterable[str]) -> str:
    return "/".join(sorted(numbers))
