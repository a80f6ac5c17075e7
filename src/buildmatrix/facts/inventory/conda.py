"""Packages installed by conda, mamba or pixi, joined with the Python distributions.

Format: package.json of npm (https://docs.npmjs.com/cli/configuring-npm/package-json). A requirement
means the nearest `node_modules/NAME` further out (https://nodejs.org/api/modules.html). What the
project asks for is in its own package.json, or in the entry `""` of its package-lock.json.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from buildmatrix.facts.inventory.listing import Listing, distribution_name
from buildmatrix.facts.inventory.model import Distribution, RequirementLine

# Records in `conda-meta`.
#
# Format: one JSON file `<prefix>/conda-meta/<name>-<version>-<build>.json` per package, with
# `name`, `version`, `depends`, `files`, `paths_data.paths` (`_path`, `sha256`, `sha256_in_prefix`)
# and `requested_spec` or `requested_specs` (`PrefixRecord` of conda, conda/models/records.py, and
# of rattler, https://conda.github.io/rattler/py-rattler/prefix_record). Paths are relative to the
# prefix. Missing fields and fields of another type count as empty.


#: Bytes of one record; a package of 30,000 files has about 10 MB.
LARGEST_RECORD = 32 << 20

_RECORD = re.compile(r"(?:(?P<prefix>.+)/)?conda-meta/[^/]+\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_METADATA_FILES = (".dist-info/METADATA", ".egg-info/PKG-INFO", ".egg-info")


#: In characters.
_LONGEST_LICENSE = 1000


@dataclass(frozen=True, slots=True)
class CondaPackage:
    """One package record."""

    name: str
    version: str
    #: Path of the record, and the environment's folder; empty for the tree's root.
    path: str
    prefix: str
    #: Names of its dependencies.
    depends: tuple[str, ...]
    requested: bool
    #: As in its recipe: SPDX or free text.
    license: str
    #: Listed files that exist in the tree, with hashes in RECORD syntax; empty for none.
    files: Mapping[str, str]

    @property
    def metadata(self) -> tuple[str, ...]:
        """Metadata folders (or files) of Python distributions in this package."""
        folders = set[str]()
        for path in self.files:
            if path.endswith(_METADATA_FILES):
                is_inside = path.endswith(("/METADATA", "/PKG-INFO"))
                folders.add(path.rpartition("/")[0] if is_inside else path)
        return tuple(sorted(folders))


def read_conda_packages(listing: Listing) -> list[CondaPackage]:
    """Read the packages of all environments in the tree, in the order of their records."""
    packages = (
        listing.attempt(path, partial(_read_package, listing, path, match["prefix"] or ""), None)
        for path in sorted(listing.files)
        if (match := _RECORD.fullmatch(path))
    )
    return [package for package in packages if package is not None]


def _read_package(listing: Listing, path: str, prefix: str) -> CondaPackage | None:
    data = listing.read(path, LARGEST_RECORD)
    if data is None:
        return None
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        listing.note(path, f"no readable JSON: {type(error).__name__}")
        return None
    match record:
        case {"name": str(name), "version": str(version)} if name and version:
            return CondaPackage(
                name=name,
                version=version,
                path=path,
                prefix=prefix,
                depends=tuple(dict.fromkeys(_parse_names(record.get("depends")))),
                requested=bool(record.get("requested_spec") or record.get("requested_specs")),
                license=str(record.get("license") or "")[:_LONGEST_LICENSE],
                files=dict(_resolve_files(listing, prefix, record)),
            )
    listing.note(path, "no record of a conda package: it has no name or no version")
    return None


def _parse_names(depends: object) -> Iterator[str]:
    """Yield the names in match specifications: `libcublas >=12.4,<13.0a0`, `conda-forge::numpy`."""
    for line in depends if isinstance(depends, list) else ():
        if isinstance(line, str):
            match = re.match(r"\s*(?:[^\s:]*::?)?([A-Za-z0-9_.-]+)", line)
            if match is not None:
                yield match[1]


def _resolve_files(
    listing: Listing, prefix: str, record: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    for name, digest in _list_files(record):
        inside = posixpath.normpath(posixpath.join(prefix, name))
        place = inside if inside in listing.files else listing.paths.file(inside)
        # A record owns nothing outside its environment, whatever its names or links say.
        around = f"{prefix}/" if prefix else ""
        if place is not None and inside.startswith(around) and place.startswith(around):
            yield place, digest


def _list_files(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    match record.get("paths_data"):
        case {"paths": [_, *_] as paths}:
            for path in paths:
                match path:
                    case {"_path": str(name)}:
                        sha256 = path.get("sha256_in_prefix") or path.get("sha256")
                        if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
                            yield name, record_hash("sha256", bytes.fromhex(sha256))
                        else:
                            yield name, ""
            return
    files = record.get("files")
    for name in files if isinstance(files, list) else ():
        if isinstance(name, str):
            yield name, ""


def record_hash(algorithm: str, digest: bytes) -> str:
    """Return a hash as a RECORD has it: `sha256=<base64>`."""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


# Join with Python distributions.
#
# A conda package with a single Python distribution becomes that distribution, with all of its
# files. Any other becomes a distribution of its own. Files in a Python distribution's RECORD stay
# with it.


#: Installer name for conda, mamba and pixi, which write the same records.
CONDA = "conda"
#: Start of the names of conda packages in a lock: `conda:pytorch`. No name of PyPI has a colon.
CONDA_PREFIX = f"{CONDA}:"


@dataclass(frozen=True, slots=True)
class RecordedDistribution:
    """A distribution, and the files of its record: path in the tree to hash as written, or ``."""

    distribution: Distribution
    record: Mapping[str, str]


def merge_conda_packages(
    listing: Listing, python_distributions: Sequence[RecordedDistribution]
) -> list[RecordedDistribution]:
    """Return the Python distributions and the packages of the tree's conda environments."""
    packages = read_conda_packages(listing)
    by_path = {recorded.distribution.path: recorded for recorded in python_distributions}
    brought: dict[str, list[str]] = {}
    names: dict[tuple[str, str], str] = {}
    for package in packages:
        paths = brought[package.path] = [path for path in package.metadata if path in by_path]
        is_python = len(paths) == 1
        name = by_path[paths[0]].distribution.name if is_python else distribution_name(package.name)
        names[package.prefix, package.name] = name
    additional = []
    for package in packages:
        paths = brought[package.path]
        claimed = {path for place in paths for path in by_path[place].record}
        record = {path: digest for path, digest in package.files.items() if path not in claimed}
        if len(paths) == 1:
            distribution = by_path[paths[0]].distribution
            record = {**by_path[paths[0]].record, **record}
        else:
            # It requires its installed dependencies.
            requires = (names.get((package.prefix, name)) for name in package.depends)
            distribution = Distribution(
                name=distribution_name(package.name),
                version=package.version,
                path=package.path,
                requires=tuple(dict.fromkeys(name for name in requires if name is not None)),
                license=package.license,
            )
        distribution = replace(
            distribution,
            installer=distribution.installer or CONDA,
            requested=distribution.requested or package.requested,
            files=len(record),
            size=sum(listing.files[path].size for path in record),
            has_record=True,
        )
        if len(paths) == 1:
            by_path[paths[0]] = RecordedDistribution(distribution, record)
        else:
            additional.append(RecordedDistribution(distribution, record))
    return [*by_path.values(), *additional]


#: Installer, and start of the names: `npm:onnxruntime-node`. No name of PyPI has a colon.
NPM = "npm"
PREFIX = f"{NPM}:"
#: Bytes of one package.json; the longest real ones have 200 kB. Of a lock, and of all together.
LARGEST_MANIFEST = 2 << 20
LARGEST_LOCK = 32 << 20
ALL_MANIFESTS = 64 << 20
#: An image of a large web application has 3,000.
MOST_PACKAGES = 20_000
#: Requirements of one package, and of all together.
_MOST_OF_ONE = 1_000
_MOST_REQUIREMENTS = 100_000
#: Most folders to search for one requirement, and most `node_modules` in one path.
_DEEPEST = 32
_MANIFEST = "package.json"
_LOCK = "package-lock.json"
_FOLDER = "node_modules/"
_PACKAGE = re.compile(r"(?:.*/)?node_modules/(?P<name>(?:@[^/]+/)?[^/@.][^/]*)/package\.json")
_NAMING = ("name", "version", "license")
_NEEDS = ("dependencies", "optionalDependencies", "peerDependencies")
_ASKS = ("dependencies", "optionalDependencies", "devDependencies")
_BEGIN = re.compile(rf'"(?:{"|".join(_ASKS)})"\s*:')
_LINE = re.compile(r'\n|"([^"\\\n]{1,214})"\s*:\s*"([^"\\\n]{0,200})"')
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class _Manifest:
    """Names and dependencies in a package.json."""

    name: str
    version: str
    license: str
    needs: tuple[str, ...]


def read_npm_packages(listing: Listing, claimed: Container[str]) -> list[RecordedDistribution]:
    """Return the packages, each with the files below its folder that belong to no package in it.

    Files that others have `claimed` stay with these, and so do packages that are theirs.
    """
    found = {
        path.rpartition("/")[0]: match["name"]
        for path in listing.files
        if path.endswith(_MANIFEST) and (match := _PACKAGE.fullmatch(path)) and path not in claimed
    }
    if not found:
        return []
    reader = _ManifestReader(listing)
    manifests: dict[str, _Manifest] = {}
    for folder in sorted(found):
        path = f"{folder}/{_MANIFEST}"
        if len(manifests) == MOST_PACKAGES or listing.files[path].size > reader.remaining:
            listing.note(
                path,
                f"more than {MOST_PACKAGES:,} npm packages, or {ALL_MANIFESTS:,} bytes of "
                f"{_MANIFEST}: the files of the rest have no owner",
            )
            break
        document, _ = reader.read(path, LARGEST_MANIFEST)
        name, version, license = (_clean(document.get(key)) for key in _NAMING)
        needs = tuple(_list_keys(document, _NEEDS))
        manifests[folder] = _Manifest(name or _clean(found[folder]) or "?", version, license, needs)
    records: dict[str, dict[str, str]] = {folder: {} for folder in manifests}
    for path in listing.files:
        owner = _find_package(path, records) if _FOLDER in path else None
        if owner is not None and path not in claimed:
            records[owner][path] = ""
    tree = _Tree(listing, manifests)
    lines = tree.find_lines(reader)
    return [
        RecordedDistribution(
            Distribution(
                name=f"{PREFIX}{manifest.name}",
                version=manifest.version,
                path=f"{folder}/{_MANIFEST}",
                requires=tuple(tree.resolve_all(folder, manifest.needs)),
                installer=NPM,
                requested=folder in lines,
                files=len(records[folder]),
                size=sum(listing.files[path].size for path in records[folder]),
                license=manifest.license,
                lines=tuple(lines.get(folder, ())),
            ),
            records[folder],
        )
        for folder, manifest in manifests.items()
    ]


class _ManifestReader:
    """Reads JSON objects, up to `ALL_MANIFESTS` bytes."""

    def __init__(self, listing: Listing) -> None:
        self.remaining = ALL_MANIFESTS
        self._listing = listing

    def read(self, path: str, limit: int) -> tuple[Mapping[str, object], str]:
        """Return the object and its text; empty, with a note, if that fails."""
        data = self._listing.read(path, limit)
        self.remaining -= len(data or b"")
        text = (data or b"").decode("utf-8-sig", "backslashreplace")
        if data is None:
            return {}, ""
        try:
            # Numbers stay text: one of a million digits takes minutes to read.
            document = json.loads(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError) as error:
            self._listing.note(path, f"no readable JSON: {type(error).__name__}")
            return {}, ""
        return (document, text) if isinstance(document, dict) else ({}, "")


def _clean(value: object) -> str:
    """Return a printable text without the separators of owners; empty for anything else."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return ""
    return re.sub(r"[^\x21-\x7e]+|==|,", "-", value.strip())


def _list_keys(document: Mapping[str, object], sections: tuple[str, ...]) -> Iterator[str]:
    for section in sections:
        entries = document.get(section)
        if isinstance(entries, dict):
            yield from list(entries)[:_MOST_OF_ONE]


def _find_package(path: str, packages: Container[str]) -> str | None:
    """Return the innermost package folder around `path`."""
    at = len(path)
    for _ in range(_DEEPEST):
        at = path.rfind(_FOLDER, 0, at)
        if at < 0:
            return None
        start = at + len(_FOLDER)
        end = path.find("/", start)
        if path.startswith("@", start):
            end = path.find("/", end + 1) if end > 0 else -1
        if end > 0 and path[:end] in packages:
            return path[:end]
    return None


class _Tree:
    """Package folders, and what requirements in them mean."""

    def __init__(self, listing: Listing, manifests: Mapping[str, _Manifest]) -> None:
        self._listing = listing
        self._manifests = manifests
        self._remaining = _MOST_REQUIREMENTS

    def _resolve(self, folder: str, name: str) -> str | None:
        """Return the folder of the package that code in `folder` gets as `name`."""
        self._remaining -= 1
        for _ in range(_DEEPEST if self._remaining >= 0 else 0):
            if not folder.endswith("node_modules"):
                place = f"{folder}/{_FOLDER}{name}".lstrip("/")
                if place in self._listing.links:
                    # As pnpm lays them out.
                    place = self._listing.paths.folder(place) or ""
                if place in self._manifests:
                    return place
            if not folder:
                return None
            folder = folder.rpartition("/")[0]
        return None

    def resolve_all(self, folder: str, names: tuple[str, ...]) -> Iterator[str]:
        """Yield the names of the distributions that a package in `folder` requires."""
        places = (self._resolve(folder, name) for name in names)
        required = (self._manifests[place].name for place in places if place is not None)
        yield from dict.fromkeys(f"{PREFIX}{name}" for name in required)

    def find_lines(self, reader: _ManifestReader) -> dict[str, list[RequirementLine]]:
        """Map package folders to the lines of projects that ask for them."""
        lines: dict[str, list[RequirementLine]] = {}
        for project in self._find_projects():
            names = (f"{project}/{name}".lstrip("/") for name in (_MANIFEST, _LOCK))
            manifest = next((name for name in names if name in self._listing.files), None)
            if manifest is None or self._listing.files[manifest].size > reader.remaining:
                continue
            is_lock = manifest.endswith(_LOCK)
            document, text = reader.read(manifest, LARGEST_LOCK if is_lock else LARGEST_MANIFEST)
            if is_lock:
                packages = document.get("packages")
                root = packages.get("") if isinstance(packages, dict) else None
                document = root if isinstance(root, dict) else {}
            places = _find_places(text)
            for name in dict.fromkeys(_list_keys(document, _ASKS)):
                place = self._resolve(project, name)
                if place is not None and name in places:
                    number, wanted = places[name]
                    line = RequirementLine(f"{manifest}:{number}", f"{name} {wanted}".strip())
                    lines.setdefault(place, []).append(line)
        return lines

    def _find_projects(self) -> list[str]:
        """Return the folders beside `node_modules`, and those of workspaces, which it links to."""
        projects = {folder[: folder.find(_FOLDER)].rstrip("/") for folder in self._manifests}
        for path in self._listing.links:
            if _FOLDER in path and len(projects) < MOST_PACKAGES:
                folder = self._listing.paths.folder(path) or ""
                if _FOLDER not in folder and f"{folder}/{_MANIFEST}" in self._listing.files:
                    projects.add(folder)
        return sorted(projects)


def _find_places(text: str) -> dict[str, tuple[int, str]]:
    """Map names in the requirements of a manifest to their line, and to what it asks for."""
    places: dict[str, tuple[int, str]] = {}
    begin = _BEGIN.search(text)
    if begin is None:
        return places
    number = text.count("\n", 0, begin.end()) + 1
    for match in _LINE.finditer(text, begin.end()):
        if match[1] is None:
            number += 1
        else:
            places.setdefault(match[1], (number, match[2]))
    return places
