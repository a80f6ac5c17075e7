"""Owners of files among operating system packages: dpkg's lists and apk's database.

Python metadata does not cover most files in an image: the C library, a driver, software of the base
image. Sources: dpkg(1), "/var/lib/dpkg/info/*.list"; APK installed database v2.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping

from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import SystemPackage
from buildmatrix.inventory.names import readable
from buildmatrix.inventory.system import APK_INSTALLED, DPKG_FOLDER, LARGEST_STATUS

#: Lists of installed files, one per package.
DPKG_LISTS = "var/lib/dpkg/info"
#: Size limit of one package's list; linux-headers have about 2 MB.
LARGEST_LIST = 16 << 20
#: Package lists read; a full desktop has 4,000.
MOST_LISTS = 20_000


def find_packages(
    listing: Listing, packages: Collection[SystemPackage], paths: Collection[str]
) -> dict[str, str]:
    """Map each of `paths` to `name version` of the package that lists it, if any.

    Folders count too. Sorted by path; the first of several packages wins.
    """
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    versions = {system_package.name: system_package.version for system_package in packages}
    packages_by_path: dict[str, str] = {}
    if not versions or not by_name:
        return packages_by_path
    for package, listed_path in _read_lists(listing, versions):
        folder, _, name = listed_path.rstrip("/").rpartition("/")
        if name not in by_name:
            continue
        # Lists name /lib, which is a link to /usr/lib on most systems.
        resolved = listing.paths.folder(folder)
        path = f"{resolved}/{name}" if resolved else name
        if path in by_name[name]:
            packages_by_path.setdefault(path, f"{package} {versions.get(package, '')}".rstrip())
    return dict(sorted(packages_by_path.items()))


def _read_lists(listing: Listing, versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every package with each path that it lists."""
    names = [name for name in listing.names_in(DPKG_LISTS) if name.endswith(".list")]
    for name in names[:MOST_LISTS]:
        # `libgomp1:amd64.list` if a package is installed for several architectures.
        package = name.removesuffix(".list").partition(":")[0]
        for line in _read_lines(listing, f"{DPKG_LISTS}/{name}") if package in versions else ():
            yield package, line
    for path in listing.below(DPKG_FOLDER.rstrip("/")):
        package = posixpath.basename(path).removesuffix(".md5sums")
        if path.endswith(".md5sums"):
            for line in _read_lines(listing, path):
                yield package, line.partition("  ")[2]
    for database in APK_INSTALLED:
        package, folder = "", ""
        for line in _read_lines(listing, database, LARGEST_STATUS):
            key, _, value = line.partition(":")
            if key == "P":
                package, folder = value, ""
            elif key == "F":
                folder = value
                yield package, folder
            elif key == "R":
                yield package, f"{folder}/{value}"


def _read_lines(listing: Listing, path: str, limit: int = LARGEST_LIST) -> Iterator[str]:
    resolved = listing.paths.file(path)
    data = None if resolved is None else listing.read(resolved, limit)
    yield from readable((data or b"").decode("utf-8", "surrogateescape")).splitlines()
