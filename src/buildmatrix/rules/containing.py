"""Components inside a target's distributions, and the distributions that require them.

Names in SBOMs are those of packages (`xz-libs`), and names of files those of libraries
(`liblzma.so.5`): only what one of them holds of the other is compared, and what differs may still
be the same. So this is said in documents, and is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from posixpath import basename
from urllib.parse import unquote

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle
from buildmatrix.inventory.model import Binary, ClosedFile, Distribution
from buildmatrix.locks.platform import marker_environment
from buildmatrix.locks.requires import metadata_of, requirements
from buildmatrix.rules.carried import HELD
from buildmatrix.rules.contents import NativeComponent, SbomComponent
from buildmatrix.rules.subject import ImageSubject

#: Types of package URLs: system packages, whose libraries a wheel has as files, and packages built
#: for a wheel, which may be linked into its own files: `openssl` in `cryptography`.
_OF_SYSTEMS = frozenset({"alpm", "apk", "brew", "conda", "deb", "rpm"})
_BUILT = frozenset({"conan", "generic", "github", "vcpkg"})
_PURL = re.compile(r"pkg:(?P<type>[^/]+)/+(?P<path>[^@?#]*)")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)*)$", re.ASCII)
#: Lines of evidence of one file that are kept.
_MOST_DETAILS = 8


class Contents:
    """Components inside the distributions of a target, by owner (`name==version`)."""

    def __init__(self, image: ImageSubject) -> None:
        """Group the evidence by file."""
        self._binaries = {binary.path: binary for binary in image.inventory.binaries}
        self._distributions = {
            distribution.owner: distribution for distribution in image.inventory.distributions
        }
        self._held: dict[str, dict[tuple[str, str], list[Evidence]]] = {}
        for item in image.evidence:
            if item.kind in HELD and item.weight != "neutral" and item.path:
                files = self._held.setdefault(item.distribution or "", {})
                files.setdefault((item.path, item.vendor), []).append(item)
        self._files: dict[str, list[str]] = {}
        owners = {item.owner for item in self._distributions.values() if item.components}
        native: tuple[Binary | ClosedFile, ...] = (
            *image.inventory.binaries,
            *image.inventory.closed,
        )
        for file in native if owners else ():
            if file.owner in owners:
                self._files.setdefault(file.owner, []).append(file.path)

    def libraries(self, owner: str) -> tuple[NativeComponent, ...]:
        """Return an owner's vendor components by path; the empty owner is no distribution."""
        files = self._held.get(owner, {})
        return _libraries(files, self._binaries, self._distributions.get(owner))

    def sbom(self, owner: str) -> tuple[SbomComponent, ...]:
        """Return the components in the SBOMs of a distribution."""
        distribution = self._distributions.get(owner)
        if distribution is None or not distribution.components:
            return ()
        stems = frozenset(map(_stem, self._files.get(owner, ()))) - {""}
        return tuple(_sbom(distribution, stems))


def _libraries(
    files: Mapping[tuple[str, str], list[Evidence]],
    binaries: Mapping[str, Binary],
    distribution: Distribution | None,
) -> tuple[NativeComponent, ...]:
    names = (
        {_plain(_name(purl)) for purl in distribution.components} - {""}
        if distribution is not None and distribution.components
        else None
    )
    libraries = []
    for (path, vendor), items in sorted(files.items()):
        binary = binaries.get(path)
        soname = binary.elf.soname or "" if binary is not None else ""
        versions = [match[1] for name in (path, soname) if (match := _VERSION.search(name))]
        best = min(items, key=lambda item: ("high", "medium", "low").index(item.confidence))
        libraries.append(
            NativeComponent(
                path,
                vendor,
                best.role,
                tuple(kind for kind in HELD if any(item.kind == kind for item in items)),
                best.confidence,
                binary.size if binary is not None else max(item.size for item in items),
                soname,
                max(versions, key=len, default=""),
                tuple(dict.fromkeys(item.detail for item in items))[:_MOST_DETAILS],
                tuple(dict.fromkeys(name for item in items for name in item.architectures)),
                None if names is None else _is_like(_stem(path), names),
            )
        )
    return tuple(libraries)


def _sbom(distribution: Distribution, stems: frozenset[str]) -> Iterator[SbomComponent]:
    for purl in distribution.components:
        match = _PURL.match(purl)
        kind = match["type"] if match is not None else ""
        name = _plain(_name(purl))
        if kind == "pypi" and name == _plain(distribution.name):
            continue  # Itself.
        seen = None
        if name and kind in _OF_SYSTEMS | _BUILT:
            seen = _is_like(name, stems) or _begins_like(_name(purl), stems)
            if not seen and kind in _BUILT:
                seen = None
        yield SbomComponent(purl, seen)


def _stem(path: str) -> str:
    return _plain(demangle(basename(path)).partition(".so")[0])


def _name(purl: str) -> str:
    match = _PURL.match(purl)
    return unquote(match["path"].rstrip("/").rpartition("/")[2]) if match is not None else ""


def _plain(name: str) -> str:
    """Return a name without `lib` and versions, to compare packages with libraries."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("lib"))
    return re.sub(r"(?<=[a-z])\d+$", "", letters)


def _is_like(name: str, others: frozenset[str] | set[str]) -> bool:
    if len(name) < 3:
        return name in others
    return any(len(other) > 2 and (name in other or other in name) for other in others)


def _begins_like(name: str, stems: frozenset[str]) -> bool:
    """Return True if a library has a package's first word: `libopenblasp`, `openblas-threads`."""
    word = _plain(re.split(r"[-_.+]", name)[0])
    return len(word) > 4 and any(word in stem for stem in stems)


def askers(image: ImageSubject) -> Mapping[str, tuple[str, ...]]:
    """Name → names of the distributions that require it: by the lock, else by their metadata."""
    if image.packages:
        return {
            name: tuple(sorted(image.packages.keys() & set(package.via)))
            for name, package in image.packages.items()
        }
    lines = metadata_of(image.inventory.distributions)
    environment = marker_environment(image.target)
    by_name: dict[str, set[str]] = {}
    for name, requires in lines.items():
        for need in requirements(requires, lines, environment):
            if need.extra is None and need.name != name:
                by_name.setdefault(need.name, set()).add(name)
    return {name: tuple(sorted(names)) for name, names in by_name.items()}
