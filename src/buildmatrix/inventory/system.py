"""Packages, library folders and loader configuration of a root file system."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.loader_cache import LARGEST_CACHE, read_cache
from buildmatrix.inventory.model import CachedLibrary, SystemPackage

#: Size limit of a package manager's list; a full desktop has about 10 MB.
LARGEST_STATUS = 64 << 20
LARGEST_CONFIGURATION = 1 << 20
#: Limit of includes in ld.so.conf and its includes together.
MOST_INCLUDES = 200

DPKG_STATUS = "var/lib/dpkg/status"
#: Images without dpkg (distroless) have one file per package here.
DPKG_FOLDER = "var/lib/dpkg/status.d/"
#: Location up to Alpine 3.22, and the later one.
APK_INSTALLED = ("lib/apk/db/installed", "usr/lib/apk/db/installed")
LD_SO_CONF = "etc/ld.so.conf"
LD_SO_CACHE = "etc/ld.so.cache"
LD_SO_PRELOAD = "etc/ld.so.preload"


def read_system_packages(listing: Listing) -> tuple[SystemPackage, ...]:
    """Read the packages of dpkg (deb-control(5)) and apk (installed database v2), sorted."""
    packages = set[SystemPackage]()
    for path in sorted(listing.files):
        if path == DPKG_STATUS or (path.startswith(DPKG_FOLDER) and not path.endswith(".md5sums")):
            keys = ("Package", "Version")
        elif path in APK_INSTALLED:
            keys = ("P", "V")
        else:
            continue
        data = listing.read(path, LARGEST_STATUS)
        if data is not None:
            packages.update(_parse_packages(data.decode("utf-8", "backslashreplace"), *keys))
    return tuple(sorted(packages, key=lambda package: (package.name, package.version)))


def _parse_packages(text: str, name_key: str, version_key: str) -> Iterator[SystemPackage]:
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            key: value.strip() for key, value in re.findall(r"(?m)^([A-Za-z-]+):(.*)$", stanza)
        }
        name, version = fields.get(name_key), fields.get(version_key)
        # A removed package keeps its stanza as long as its configuration files stay.
        is_removed = "Status" in fields and not fields["Status"].endswith(" installed")
        if name and version and not is_removed:
            yield SystemPackage(name, version)


def read_library_folders(listing: Listing) -> tuple[str, ...]:
    """Return the folders in ld.so.conf and its includes, in order (ldconfig(8)).

    They stand in for ld.so.cache, which ldconfig builds from them.
    """
    reader = _LoaderConfiguration(listing)
    reader.read(LD_SO_CONF)
    return tuple(reader.folders)


def read_loader_cache(listing: Listing) -> tuple[CachedLibrary, ...] | None:
    """Read the entries of ld.so.cache; None if missing or unreadable."""
    path = listing.paths.file(LD_SO_CACHE)
    data = None if path is None else listing.read(path, LARGEST_CACHE)
    if path is None or data is None:
        return None
    try:
        return read_cache(data)
    except ValueError as error:
        listing.note(path, f"{error}; the folders of ld.so.conf were taken instead")
        return None


def read_preload(listing: Listing) -> tuple[str, ...]:
    """Read the names in ld.so.preload (ld.so(8)), separated by white space or colons."""
    path = listing.paths.file(LD_SO_PRELOAD)
    data = None if path is None else listing.read(path, LARGEST_CONFIGURATION)
    lines = (data or b"").decode("utf-8", "backslashreplace").splitlines()
    return tuple(
        name for line in lines for name in re.split(r"[\s:]+", line.partition("#")[0]) if name
    )


def read_musl_folders(listing: Listing) -> dict[str, tuple[str, ...]]:
    """Map architectures to the folders that musl's loader searches instead of its defaults."""
    folders: dict[str, tuple[str, ...]] = {}
    for name in listing.names_in("etc"):
        if name.startswith("ld-musl-") and name.endswith(".path"):
            path = listing.paths.file(f"etc/{name}")
            data = None if path is None else listing.read(path, LARGEST_CONFIGURATION)
            if data is not None:
                text = data.decode("utf-8", "backslashreplace")
                architecture = name[len("ld-musl-") : -len(".path")]
                folders[architecture] = tuple(filter(None, re.split(r"[\n:]", text)))
    return folders


class _LoaderConfiguration:
    """The folders of ld.so.conf, in the order of their first mention."""

    def __init__(self, listing: Listing) -> None:
        self.folders: dict[str, None] = {}
        self._listing = listing
        self._visited: set[str] = set()
        self._includes = 0

    def read(self, name: str) -> None:
        path = self._listing.paths.file(name)
        if path is None or path in self._visited:
            return
        self._visited.add(path)
        data = self._listing.read(path, LARGEST_CONFIGURATION)
        if data is None:
            return
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            words = line.partition("#")[0].split()
            if not words or words[0] == "hwcap":
                continue
            if words[0] == "include":
                for pattern in words[1:]:
                    self._include(posixpath.join(posixpath.dirname(name), pattern), path)
                continue
            for folder in re.split(r"[\s,:]+", " ".join(words)):
                # `folder=libc6` names an ABI, which only ancient systems used.
                folder = folder.partition("=")[0]
                if folder.startswith("/"):
                    self.folders[posixpath.normpath(folder).lstrip("/")] = None

    def _include(self, pattern: str, by: str) -> None:
        self._includes += 1
        if self._includes > MOST_INCLUDES:
            if self._includes == MOST_INCLUDES + 1:
                self._listing.note(by, f"more than {MOST_INCLUDES} includes; the rest was left out")
            return
        # `*` and `?` are supported in the last component only; no system uses them elsewhere.
        folder, _, last = pattern.rpartition("/")
        for name in self._listing.names_in(folder):
            if fnmatchcase(name, last):
                self.read(f"{folder}/{name}")
