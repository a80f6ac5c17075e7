"""Packages, file owners, library folders and loader configuration of a root file system."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import astuple, replace
from fnmatch import fnmatchcase
from itertools import chain, islice
from struct import Struct, calcsize, unpack_from

from buildmatrix.facts.inventory.listing import Listing, readable
from buildmatrix.facts.inventory.model import CachedLibrary, SystemPackage
from buildmatrix.facts.inventory.rpm import (
    MOST_NAMES,
    MOST_PACKAGES,
    PackageRecord,
    read_rpm_files,
    read_rpm_packages,
)

# Reader for /etc/ld.so.cache, ld.so's index of the folders in ld.so.conf.
#
# Format: `struct cache_file_new` of glibc's sysdeps/generic/dl-cache.h, "glibc-ld.so.cache1.1",
# which may follow the old format in the same file, in either byte order.


#: File size limit; a full desktop's has 300 KB.
LARGEST_CACHE = 16 << 20
MOST_ENTRIES = 100_000
LONGEST_STRING = 4096

_MAGIC = b"glibc-ld.so.cache1.1"
#: nlibs, len_strings, flags, padding, extension_offset, unused.
_HEADER = "IIB3xI12x"
#: flags, key, value, osversion, hwcap.
_ENTRY = "iIIIQ"
#: magic and count; then tag, flags, offset and size of each section.
_EXTENSION = "II"
_SECTION = "IIII"
_EXTENSION_MAGIC = 0xEAA42174
_TAG_HWCAPS = 1
#: Flag: the low word of hwcap is an index into the names of glibc-hwcaps folders.
_IS_HWCAPS = 1 << 62
_BIG_ENDIAN = 3


def read_cache(data: bytes) -> tuple[CachedLibrary, ...]:
    """Return the entries in file order. Raises ValueError, one sentence, for broken bytes."""
    start = data.find(_MAGIC)
    if start < 0:
        raise ValueError("no ld.so.cache of the format 1.1")
    data = data[start:]
    first = len(_MAGIC) + calcsize(f"<{_HEADER}")
    if len(data) < first:
        raise ValueError("ld.so.cache ends inside its header")
    order = ">" if data[len(_MAGIC) + 8] & 3 == _BIG_ENDIAN else "<"
    count, _, _, extension = unpack_from(order + _HEADER, data, len(_MAGIC))
    entry = Struct(order + _ENTRY)
    if count > MOST_ENTRIES or first + count * entry.size > len(data):
        raise ValueError(f"ld.so.cache says that it has {count} entries, which it has not")
    levels = _read_hwcaps(data, order, extension)
    cached_libraries: list[CachedLibrary] = []
    for flags, key, value, _, hwcap in entry.iter_unpack(data[first : first + count * entry.size]):
        level = "unknown" if hwcap else None
        if hwcap & _IS_HWCAPS and hwcap & 0xFFFFFFFF < len(levels):
            level = levels[hwcap & 0xFFFFFFFF]
        names = (_read_string(data, key), _read_string(data, value))
        cached_libraries.append(CachedLibrary(*names, flags, level))
    return tuple(cached_libraries)


def _read_hwcaps(data: bytes, order: str, offset: int) -> list[str]:
    """Return the names of the glibc-hwcaps folders."""
    extension, section = Struct(order + _EXTENSION), Struct(order + _SECTION)
    if not offset or offset + extension.size > len(data):
        return []
    magic, count = extension.unpack_from(data, offset)
    if magic != _EXTENSION_MAGIC:
        return []
    for number in range(min(count, 64)):
        at = offset + extension.size + number * section.size
        if at + section.size > len(data):
            break
        tag, _, start, size = section.unpack_from(data, at)
        if tag == _TAG_HWCAPS and start + size <= len(data):
            names = Struct(order + "I").iter_unpack(data[start : start + size // 4 * 4][:1024])
            return [_read_string(data, name) for (name,) in names]
    return []


def _read_string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + LONGEST_STRING)
    if end < 0:
        raise ValueError("ld.so.cache names a string that lies outside of it")
    return data[offset:end].decode("utf-8", "backslashreplace")


# Packages and library folders


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
OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
LD_SO_CONF = "etc/ld.so.conf"
LD_SO_CACHE = "etc/ld.so.cache"
LD_SO_PRELOAD = "etc/ld.so.preload"
#: Names in `D` and `p`, without versions.
_APK_NAME = re.compile(r"(?:^|\s)([^\s<>=~]+)")
#: Names in Depends and Provides, without versions in parentheses and architectures.
_DPKG_NAME = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")


def read_operating_system(listing: Listing) -> str:
    """Return `ID VERSION_ID` of os-release(5), in lower case; empty if unknown."""
    for name in OS_RELEASE:
        data = listing.read_linked(name, LARGEST_CONFIGURATION)
        if data is not None:
            pairs = re.findall(r"(?m)^([A-Z_]+)=[\"']?([^\"'\s]*)", data.decode("utf-8", "replace"))
            values = dict(pairs)
            return f"{values.get('ID', '')} {values.get('VERSION_ID', '')}".strip().lower()
    return ""


def read_system_packages(listing: Listing) -> tuple[SystemPackage, ...]:
    """Read the packages of dpkg (deb-control(5)), apk (installed database v2) and RPM, sorted."""
    records: list[PackageRecord] = []
    for path in sorted(listing.files):
        if path == DPKG_STATUS or (path.startswith(DPKG_FOLDER) and not path.endswith(".md5sums")):
            parse = _parse_dpkg
        elif path in APK_INSTALLED:
            parse = _parse_apk
        else:
            continue
        data = listing.read(path, LARGEST_STATUS)
        if data is not None:
            stanzas = _parse_stanzas(data.decode("utf-8", "backslashreplace"))
            parsed = filter(None, map(parse, stanzas))
            records += islice(parsed, MOST_PACKAGES)
            if next(parsed, None) is not None:
                listing.note(path, f"more than {MOST_PACKAGES} packages; the rest was left out")
    records += read_rpm_packages(listing)
    # The first of several packages, as for files.
    providers = {record.package.name: record.package.name for record in records}
    provided = ((name, record.package.name) for record in records for name in record.provides)
    for name, provider in islice(provided, MOST_NAMES):
        providers.setdefault(name, provider)
    packages = set[SystemPackage]()
    for record in records:
        required = {providers[name] for name in record.requires if name in providers}
        requires = tuple(sorted(required - {record.package.name}))
        packages.add(replace(record.package, requires=requires))
    return tuple(sorted(packages, key=astuple))


def _parse_stanzas(text: str) -> Iterator[dict[str, str]]:
    for stanza in re.split(r"\n\s*\n", text):
        yield {key: value.strip() for key, value in re.findall(r"(?m)^([A-Za-z-]+):(.*)$", stanza)}


def _parse_dpkg(fields: Mapping[str, str]) -> PackageRecord | None:
    name, version = fields.get("Package"), fields.get("Version")
    # A removed package keeps its stanza as long as its configuration files stay.
    is_removed = "Status" in fields and not fields["Status"].endswith(" installed")
    if not name or not version or is_removed:
        return None
    wanted = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
    return PackageRecord(
        SystemPackage(name, version, "deb", fields.get("Architecture", "")),
        _DPKG_NAME.findall(wanted),
        _DPKG_NAME.findall(fields.get("Provides", "")),
    )


def _parse_apk(fields: Mapping[str, str]) -> PackageRecord | None:
    name, version = fields.get("P"), fields.get("V")
    if not name or not version:
        return None
    return PackageRecord(
        SystemPackage(name, version, "apk", fields.get("A", ""), license=fields.get("L", "")),
        _APK_NAME.findall(fields.get("D", "")),
        _APK_NAME.findall(fields.get("p", "")),
    )


def read_library_folders(listing: Listing) -> tuple[str, ...]:
    """Return the folders in ld.so.conf and its includes, in order (ldconfig(8)).

    They stand in for ld.so.cache, which ldconfig builds from them.
    """
    reader = _LoaderConfiguration(listing)
    reader.read(LD_SO_CONF)
    return tuple(reader.folders)


def read_loader_cache(listing: Listing) -> tuple[CachedLibrary, ...] | None:
    """Read the entries of ld.so.cache; None if missing or unreadable."""
    data = listing.read_linked(LD_SO_CACHE, LARGEST_CACHE)
    try:
        return None if data is None else read_cache(data)
    except ValueError as error:
        place = listing.paths.file(LD_SO_CACHE) or LD_SO_CACHE
        listing.note(place, f"{error}; the folders of ld.so.conf were taken instead")
        return None


def read_preload(listing: Listing) -> tuple[str, ...]:
    """Read the names in ld.so.preload (ld.so(8)), separated by white space or colons."""
    data = listing.read_linked(LD_SO_PRELOAD, LARGEST_CONFIGURATION) or b""
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    return tuple(
        name for line in lines for name in re.split(r"[\s:]+", line.partition("#")[0]) if name
    )


def read_musl_folders(listing: Listing) -> dict[str, tuple[str, ...]]:
    """Map architectures to the folders that musl's loader searches instead of its defaults."""
    folders: dict[str, tuple[str, ...]] = {}
    for name in listing.names_in("etc"):
        if name.startswith("ld-musl-") and name.endswith(".path"):
            data = listing.read_linked(f"etc/{name}", LARGEST_CONFIGURATION)
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


# Owners of files among operating system packages: dpkg's lists, the databases of apk and RPM.
#
# Python metadata does not cover most files in an image: the C library, a driver, software of the
# base image. Sources: dpkg(1), "/var/lib/dpkg/info/*.list"; APK installed database v2; `rpm`.


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
    packages_by_path: dict[str, str] = {}
    if not packages or not by_name:
        return packages_by_path
    versions = {item.name: item.version for item in packages if item.kind != "rpm"}
    for package, listed_path in chain(
        _read_lists(listing, versions), read_rpm_files(listing, by_name)
    ):
        folder, _, name = listed_path.rstrip("/").rpartition("/")
        if name not in by_name:
            continue
        # Lists name /lib, which is a link to /usr/lib on most systems.
        resolved = listing.paths.folder(folder)
        path = f"{resolved}/{name}" if resolved else name
        if path in by_name[name]:
            packages_by_path.setdefault(path, package)
    return dict(sorted(packages_by_path.items()))


def _read_lists(listing: Listing, versions: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield `name version` of every package of dpkg and apk, with each path that it lists."""
    labels = {name: f"{name} {version}" for name, version in versions.items()}
    names = [name for name in listing.names_in(DPKG_LISTS) if name.endswith(".list")]
    for name in names[:MOST_LISTS]:
        # `libgomp1:amd64.list` if a package is installed for several architectures.
        package = name.removesuffix(".list").partition(":")[0]
        for line in _read_lines(listing, f"{DPKG_LISTS}/{name}") if package in labels else ():
            yield labels[package], line
    for path in listing.below(DPKG_FOLDER.rstrip("/")):
        package = posixpath.basename(path).removesuffix(".md5sums")
        if path.endswith(".md5sums"):
            for line in _read_lines(listing, path):
                yield labels.get(package, package), line.partition("  ")[2]
    for database in APK_INSTALLED:
        package, folder = "", ""
        for line in _read_lines(listing, database, LARGEST_STATUS):
            key, _, value = line.partition(":")
            if key == "P":
                package, folder = value, ""
            elif key == "F":
                folder = value
                yield labels.get(package, package), folder
            elif key == "R":
                yield labels.get(package, package), f"{folder}/{value}"


def _read_lines(listing: Listing, path: str, limit: int = LARGEST_LIST) -> Iterator[str]:
    data = listing.read_linked(path, limit) or b""
    yield from readable(data.decode("utf-8", "surrogateescape")).splitlines()
