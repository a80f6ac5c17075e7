"""Packages installed by conda, mamba or pixi, joined with the Python distributions."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from buildmatrix.facts.inventory.listing import Listing, distribution_name
from buildmatrix.facts.inventory.model import Distribution

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
