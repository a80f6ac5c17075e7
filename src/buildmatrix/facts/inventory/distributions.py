"""Installed distributions, their components, and file ownership."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import partial
from urllib.parse import urlsplit, urlunsplit

from buildmatrix.facts.inventory.conda import (
    RecordedDistribution,
    merge_conda_packages,
    read_npm_packages,
    record_hash,
)
from buildmatrix.facts.inventory.listing import Listing, distribution_name, readable
from buildmatrix.facts.inventory.model import Distribution, EntryPoint, SharedPath, Variant
from buildmatrix.facts.inventory.variants import LARGEST as LARGEST_VARIANT
from buildmatrix.facts.inventory.variants import read_variant
from buildmatrix.facts.trees.archive import Slice
from buildmatrix.facts.trees.base import reason
from buildmatrix.facts.trees.wheel import WheelTree, install_path

# Components, from the SBOMs in a metadata folder.
#
# Formats: PEP 770 (`.dist-info/sboms/`), CycloneDX JSON (`components`), SPDX 2 JSON (`packages`).


#: Size limit of one SBOM; that of a large Rust program has a few hundred kilobytes.
LARGEST = 8 << 20
#: SBOMs of one distribution, and components of all of them.
MOST_FILES = 64
MOST_COMPONENTS = 10_000
#: CycloneDX nests components in components.
_DEEPEST = 16


def read_components(listing: Listing, folder: str) -> tuple[str, ...]:
    """Return the package URLs of all components, sorted; failures are noted in `listing`."""
    paths = listing.below(f"{folder}/sboms")
    purls: dict[str, None] = {}
    for path in paths[:MOST_FILES]:
        data = listing.read(path, LARGEST)
        if data is None:
            continue
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            listing.note(path, "no JSON, which CycloneDX and SPDX would be")
            continue
        for purl in _find_purls(document, 0):
            if len(purls) >= MOST_COMPONENTS:
                listing.note(path, f"more than {MOST_COMPONENTS} components: the rest was left out")
                break
            purls[purl] = None
    if len(paths) > MOST_FILES:
        listing.note(f"{folder}/sboms/", f"more than {MOST_FILES} SBOMs: the rest was left out")
    return tuple(sorted(purls))


def _find_purls(document: object, depth: int) -> Iterator[str]:
    if not isinstance(document, dict) or depth > _DEEPEST:
        return
    for key in ("components", "packages"):
        entries = document.get(key)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            references = entry.get("externalRefs")
            candidates = [entry.get("purl")] + [
                reference.get("referenceLocator")
                for reference in (references if isinstance(references, list) else ())
                if isinstance(reference, dict) and reference.get("referenceType") == "purl"
            ]
            for purl in candidates:
                if isinstance(purl, str) and purl.startswith("pkg:") and len(purl) < 2048:
                    yield purl.encode("utf-8", "backslashreplace").decode()
            yield from _find_purls(entry, depth + 1)


# Distributions.
#
# Formats: core metadata 2.x (METADATA, PKG-INFO), PEP 376 and the specification "Recording
# installed projects" (RECORD, INSTALLER, REQUESTED), PEP 610 (direct_url.json). Conda's records:
# `conda`. Setuptools' eggs: a folder or a ZIP file `NAME-VERSION-pyX.Y[-PLATFORM].egg`, which holds
# modules and the folder `EGG-INFO` ("The Internal Structure of Python Eggs").


#: Bytes of METADATA; the headers come first, long descriptions reach a few hundred kilobytes.
LARGEST_METADATA = 4 << 20
#: torch's RECORD, one of the longest, has 1.5 MB.
LARGEST_RECORD = 16 << 20
#: Bytes of all RECORDs of a tree. Those of 23,000 files have 3 MB; a row with a missing file takes
#: 20 µs.
ALL_RECORDS = 64 << 20
LARGEST_NOTE = 64 << 10
#: Longest license statement, in characters; numpy's has 120.
_LONGEST_LICENSE = 1000
_CLASSIFIERS = 20
#: Bytes hashed per step.
CHUNK = 1 << 20

_DIRECT_URL = "direct_url.json"
_VARIANT = "variant.json"
_EGG = ".egg"
_METADATA_FOLDERS = (".dist-info", ".egg-info", ".egg/EGG-INFO")
#: An egg that Python imports from: one elsewhere is a package file.
_ZIPPED_EGG = re.compile(r"(?:(?:.*/)?(?:site|dist)-packages/)?[^/-]+-[^/]+-py[23][^/]*\.egg")
#: Lists of files, by the names that installers give them: PEP 376, and pip before wheels.
_RECORDS = ("RECORD", "installed-files.txt")
_HASHES = frozenset({"sha256", "sha384", "sha512"})


@dataclass(frozen=True, slots=True)
class Ownership:
    """Owners of the files of a tree."""

    #: Path → `name==version`.
    owners: Mapping[str, str]
    shared: tuple[SharedPath, ...]


def read_distributions(listing: Listing) -> tuple[tuple[Distribution, ...], Ownership]:
    """Read all distributions in the tree, and the owners of its files.

    A distribution inside another one (`setuptools/_vendor`) is part of that one.
    """
    nothing: dict[str, str] = {}
    records: dict[str, dict[str, str]] = {}
    remaining = ALL_RECORDS
    for folder in _find_metadata_folders(listing):
        path = _find_record(listing, folder) or f"{folder}/RECORD"
        size = listing.files[path].size if path in listing.files else 0
        if size > remaining:
            listing.note(path, f"the RECORDs of this tree have more than {ALL_RECORDS:,} bytes")
            records[folder] = {}
            continue
        remaining -= size
        records[folder] = listing.attempt(path, partial(_read_record, listing, folder), nothing)
    python: list[RecordedDistribution] = []
    for folder in _drop_vendored(records):
        work = partial(_read_distribution, listing, folder, records[folder])
        if (recorded := listing.attempt(folder, work, None)) is not None:
            python.append(recorded)
    installed = merge_conda_packages(listing, python)
    # Only few of about ten thousand paths are claimed twice.
    claimed = Counter(path for item in installed for path in item.record)
    installed += listing.attempt(
        "node_modules", lambda: read_npm_packages(listing, claimed), list[RecordedDistribution]()
    )
    claims: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for recorded in installed:
        owner = recorded.distribution.owner
        for path, digest in recorded.record.items():
            if claimed[path] > 1:
                claims.setdefault(path, {}).setdefault(owner, digest)
            else:
                owners[path] = owner
    shared: list[SharedPath] = []
    for path, claimants in sorted(claims.items()):
        names = tuple(sorted(claimants))
        matches = _find_matching_owners(listing, path, claimants) if len(names) > 1 else None
        owners[path] = (matches or names)[0]
        if len(names) > 1:
            shared.append(SharedPath(path, names, matches))
    # With the listing's own strings: otherwise each path would be in memory twice.
    owners = {path: owners[path] for path in listing.files if path in owners}
    return tuple(item.distribution for item in installed), Ownership(owners, tuple(shared))


def _find_metadata_folders(listing: Listing) -> list[str]:
    """Return all `.dist-info`, `.egg-info` and `EGG-INFO` folders.

    Or files: distutils wrote one file, and an egg may be one.
    """
    folders = set[str]()
    for path in listing.files:
        parent = path.rpartition("/")[0]
        if parent.endswith(_METADATA_FOLDERS):
            folders.add(parent)
        elif path.endswith(".egg-info") or _ZIPPED_EGG.fullmatch(path):
            folders.add(path)
    return sorted(folders)


def _find_record(listing: Listing, folder: str) -> str | None:
    """Return the path of the list of files in a metadata folder."""
    paths = (f"{folder}/{name}" for name in _RECORDS)
    return next((path for path in paths if path in listing.files), None)


def _drop_vendored(records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return metadata folders, except those listed by a distribution further out.

    Such a folder may be test data and no distribution at all.
    """
    listed: dict[str, set[str]] = {}
    for folder, record in records.items():
        for path in record:
            inner = path.rpartition("/")[0]
            if inner.endswith(_METADATA_FOLDERS):
                listed.setdefault(inner, set()).add(_parent_folder(folder))

    def is_inside(folder: str) -> bool:
        parent = _parent_folder(folder)
        return any(site != parent and parent.startswith(site) for site in listed.get(folder, ()))

    return [folder for folder in records if not is_inside(folder)]


def _parent_folder(folder: str) -> str:
    """Return the parent of a metadata folder, with a trailing slash; empty for the root."""
    return folder[: folder.rfind("/") + 1]


def _read_distribution(
    listing: Listing, folder: str, record: Mapping[str, str]
) -> RecordedDistribution:
    headers = _read_metadata(listing, folder)
    stem = folder.removesuffix("/EGG-INFO").rpartition("/")[2].rpartition(".")[0]
    name, _, version = stem.partition("-")
    requires = headers.get("requires-dist") or _read_egg_requires(listing, folder)
    installer = _read_note(listing, f"{folder}/INSTALLER")
    return RecordedDistribution(
        Distribution(
            name=distribution_name((headers.get("name") or [name])[0]),
            version=(headers.get("version") or [version.partition("-py")[0]])[0],
            path=folder,
            requires=tuple(requires),
            installer=(installer or "").strip() or None,
            requested=f"{folder}/REQUESTED" in listing.files,
            direct_url=_read_direct_url(listing, f"{folder}/{_DIRECT_URL}"),
            files=len(record),
            size=sum(listing.files[path].size for path in record),
            has_record=bool(record) or _find_record(listing, folder) is not None,
            entry_points=_parse_entry_points(
                _read_note(listing, f"{folder}/entry_points.txt") or ""
            ),
            components=read_components(listing, folder),
            license_expression=_shorten_license(headers, "license-expression"),
            license=_shorten_license(headers, "license"),
            license_classifiers=tuple(
                classifier[:_LONGEST_LICENSE]
                for classifier in headers.get("classifier", ())
                if classifier.startswith("License ::")
            )[:_CLASSIFIERS],
            record=_hash_record(record, folder),
            variant=_read_wheel_variant(listing, f"{folder}/{_VARIANT}"),
        ),
        record,
    )


def _shorten_license(headers: Mapping[str, list[str]], name: str) -> str:
    """Return the first value of a license header, shortened: some hold the whole license text."""
    value = (headers.get(name) or [""])[0]
    return value if len(value) <= _LONGEST_LICENSE else f"{value[: _LONGEST_LICENSE - 3]}..."


def _read_metadata(listing: Listing, folder: str) -> Mapping[str, list[str]]:
    """Read METADATA or PKG-INFO as lower-case header to values; empty if unreadable."""
    candidates = (f"{folder}/METADATA", f"{folder}/PKG-INFO", folder)
    path = next((path for path in candidates if path in listing.files), None)
    if path is None:
        listing.note(folder, "no METADATA in it: name and version are taken from the folder's name")
        return {}
    where = f"{path}/PKG-INFO" if path.endswith(_EGG) else path
    data = _read_file(listing, where, LARGEST_METADATA)
    if data is None:
        return {}
    headers = metadata_headers(data)
    if not (headers.get("name") and headers.get("version")):
        listing.note(path, "no Name or no Version: the missing one is taken from the folder's name")
    return headers


def metadata_headers(data: bytes) -> dict[str, list[str]]:
    """Return the values of each header of METADATA or PKG-INFO; names are in lower case."""
    head = re.split(rb"\r?\n\r?\n", data, maxsplit=1)[0].decode("utf-8", "backslashreplace")
    headers: dict[str, list[str]] = {}
    for key, value in HeaderParser().parsestr(head).items():
        headers.setdefault(key.lower(), []).append(" ".join(str(value).split()))
    return headers


def _read_record(listing: Listing, folder: str) -> dict[str, str]:
    """Return existing files listed in the RECORD in `folder`, with their hashes as written.

    An egg has all files in it, whatever its RECORD lists.
    """
    files: dict[str, str] = {}
    site = folder.rpartition("/")[0]
    if folder.endswith(_EGG):
        files[folder] = ""
    elif folder.endswith(f"{_EGG}/EGG-INFO"):
        files.update(dict.fromkeys(listing.below(site), ""))
    path = _find_record(listing, folder)
    data = None if path is None else listing.read(path, LARGEST_RECORD)
    if path is None or data is None:
        return files
    rows: Iterable[list[str]]
    if path.endswith("/RECORD"):
        # Decoded in pieces: StringIO takes 4 bytes for each character of 3 MB.
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8", "backslashreplace", newline="")
        rows = csv.reader(text)
    else:
        site = folder
        lines = readable(data.decode("utf-8", "surrogateescape")).splitlines()
        rows = ([line] for line in lines if line)
    try:
        for row in rows:
            place = _resolve_recorded_path(listing, site, row[0]) if row else None
            if place is not None:
                files[place] = row[1] if len(row) > 1 else ""
    except csv.Error as error:
        listing.note(path, f"no readable CSV: {error}")
    return files


def _read_file(listing: Listing, path: str, limit: int) -> bytes | None:
    """Read a file of a metadata folder, that of a zipped egg included; None if there is none."""
    if path in listing.files:
        return listing.read(path, limit)
    egg, _, name = path.rpartition("/")
    if not egg.endswith(_EGG) or egg not in listing.files:
        return None
    file = listing.files[egg]
    try:
        with listing.tree.open(file.path) as source:
            data = WheelTree(Slice(source, 0, file.size)).read_bytes(f"EGG-INFO/{name}", limit)
            listing.bytes_read += source.bytes_read
            return data
    except FileNotFoundError:
        return None
    except OSError as error:
        listing.note(egg, reason(error))
        return None


def _read_egg_requires(listing: Listing, folder: str) -> Iterator[str]:
    """Yield the lines of setuptools' requires.txt as `Requires-Dist` has them.

    `[EXTRA:MARKER]` begins a section (setuptools, "requires.txt").
    """
    for section, line in _list_lines(_read_note(listing, f"{folder}/requires.txt") or ""):
        extra, _, marker = (part.strip() for part in section.partition(":"))
        conditions = [f"({marker})"] if marker else []
        conditions += [f'extra == "{extra}"'] if extra else []
        yield f"{line} ; {' and '.join(conditions)}" if conditions else line


def _list_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines below each `[section]`, without comments."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif line and not line.startswith("#"):
            yield section, line


def _hash_record(record: Mapping[str, str], folder: str) -> str | None:
    """Hash the record of a distribution's modules, independent of the installation path.

    Excludes files that an installer writes: the metadata folder, compiled files, and scripts, which
    contain the path of the interpreter.
    """
    parent = _parent_folder(folder)
    lines = "".join(
        f"{path.removeprefix(parent)} {digest}\n"
        for path, digest in sorted(record.items())
        if digest
        and path.startswith(parent)
        and not path.startswith((f"{folder}/", "bin/"))
        and "/__pycache__/" not in path
    )
    return hashlib.sha256(lines.encode("utf-8", "backslashreplace")).hexdigest() if lines else None


def _resolve_recorded_path(listing: Listing, site: str, name: str) -> str | None:
    """Return the file of the tree for `name` in a RECORD of the site-packages `site`, or None.

    Scripts and data are outside of site-packages (`../../../bin/x`), and so perhaps outside of the
    tree, if it is a site-packages. Such files do not belong to the tree.
    """
    path = f"{site}/{name}" if site else name
    if path in listing.files and not name.startswith("/"):
        # The common case; the rest of this function takes ten times as long. Returns the listing's
        # own string if equal: otherwise each path would be in memory twice.
        same = listing.files[path].path
        return same if same == path else path
    if name.startswith("/"):
        path = name.lstrip("/")
    else:
        path = posixpath.normpath(posixpath.join(site, name))
        if path.startswith("../"):
            return None
    if path in listing.files:
        return path
    unpacked = posixpath.normpath(posixpath.join(site, install_path(name)))
    return unpacked if unpacked in listing.files else listing.paths.file(path)


def _find_matching_owners(
    listing: Listing, path: str, claimants: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the claimants whose hash matches the bytes on disk; None if unknown."""
    algorithms = {digest.partition("=")[0] for digest in claimants.values()} & _HASHES
    if not algorithms:
        return None
    name = listing.files[path].path
    known = listing.tree.sha256(name) if algorithms == {"sha256"} else None
    digests = {"sha256": known} if known else {}
    if not digests:
        hashers = {algorithm: hashlib.new(algorithm) for algorithm in algorithms}
        try:
            with listing.tree.open(name) as source:
                offset = 0
                while chunk := source.read(offset, CHUNK):
                    offset += len(chunk)
                    for hasher in hashers.values():
                        hasher.update(chunk)
        except OSError as error:
            listing.note(path, reason(error))
            return None
        listing.bytes_read += offset
        digests = {algorithm: hasher.digest() for algorithm, hasher in hashers.items()}
    actual = {record_hash(algorithm, digest) for algorithm, digest in digests.items()}
    return tuple(sorted(owner for owner, digest in claimants.items() if digest in actual))


def _parse_entry_points(text: str) -> tuple[EntryPoint, ...]:
    """Parse the lines `name = value` below `[group]`, in order; readers ignore others."""
    entry_points: list[EntryPoint] = []
    for group, line in _list_lines(text):
        name, sign, value = (part.strip() for part in line.partition("="))
        if sign and group and not line.startswith(";"):
            entry_points.append(EntryPoint(group, name, value))
    return tuple(entry_points)


def _read_note(listing: Listing, path: str) -> str | None:
    data = _read_file(listing, path, LARGEST_NOTE)
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _read_wheel_variant(listing: Listing, path: str) -> Variant | None:
    data = listing.read(path, LARGEST_VARIANT) if path in listing.files else None
    try:
        return None if data is None else read_variant(data)
    except ValueError as error:
        listing.note(path, str(error))
        return None


def _read_direct_url(listing: Listing, path: str) -> str | None:
    """Return the URL a distribution was installed from, without credentials, query or fragment.

    Signed URLs have their secret in the query.
    """
    text = _read_note(listing, path)
    if text is None:
        return None
    url = _parse_bare_url(text)
    if url is None:
        listing.note(path, "no JSON object with a url, as PEP 610 asks for")
    return url


def _parse_bare_url(text: str) -> str | None:
    try:
        match json.loads(text):
            case {"url": str(url)}:
                parts = urlsplit(url)
                host = parts.netloc.rpartition("@")[2]
                return urlunsplit((parts.scheme, host, parts.path, "", ""))
    except (ValueError, RecursionError):
        pass
    return None


def remove_secrets(path: str, data: bytes) -> bytes:
    """Return the file `path` of a metadata folder without secrets, in the same length.

    direct_url.json keeps its meaning for `collect`, without user, password and query.
    """
    if path.rpartition("/")[2] != _DIRECT_URL:
        return data
    url = _parse_bare_url(data.decode("utf-8", "backslashreplace"))
    bare = b"{}" if url is None else json.dumps({"url": url}).encode()
    return (bare if len(bare) <= len(data) else b"").ljust(len(data))
