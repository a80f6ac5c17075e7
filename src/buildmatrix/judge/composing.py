"""Compute the composition of a target and its components, from facts and verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from posixpath import basename
from urllib.parse import quote, unquote

from buildmatrix.catalogue.model import Evidence, demangle
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Container,
    Inventory,
    SystemPackage,
)
from buildmatrix.judge.composition import (
    Composition,
    DistributionBytes,
    FileBytes,
    LayerBytes,
    NativeComponent,
    SbomComponent,
    SystemComponent,
    VendorBytes,
)
from buildmatrix.judge.evidence import HELD
from buildmatrix.judge.model import Verdict
from buildmatrix.judge.subject import ImageSubject
from buildmatrix.locks.requires import metadata_of, requirements
from buildmatrix.locks.selection import marker_environment

# Components of distributions.
#
# SBOMs name packages (`xz-libs`), files name libraries (`liblzma.so.5`), so only names that contain
# each other are compared. Two different names may still be the same component, so a difference is
# shown in documents and is no finding.


#: Types of package URLs: system packages, whose libraries a wheel has as files, and packages built
#: for a wheel, which may be linked into its own files: `openssl` in `cryptography`.
_OF_SYSTEMS = frozenset({"alpm", "apk", "brew", "conda", "deb", "rpm"})
_BUILT = frozenset({"conan", "generic", "github", "vcpkg"})
#: Characters that package URLs do not encode.
_PLAIN = ".-_~:"
_PURL = re.compile(r"pkg:(?P<type>[^/]+)/+(?P<path>[^@?#]*)")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)*)$", re.ASCII)
#: Lines of evidence of one file that are kept.
_MOST_DETAILS = 8


class Contents:
    """Components inside the distributions of a target, by owner (`name==version`)."""

    def __init__(self, image: ImageSubject) -> None:
        """Group the evidence by file."""
        self._binaries = {binary.path: binary for binary in image.inventory.binaries}
        self._distributions = {item.owner: item for item in image.inventory.distributions}
        self._held: dict[str, dict[tuple[str, str], list[Evidence]]] = {}
        for item in image.evidence:
            if item.kind in HELD and item.weight != "neutral" and item.path:
                files = self._held.setdefault(item.distribution or "", {})
                files.setdefault((item.path, item.vendor), []).append(item)
        self._files: dict[str, list[str]] = {}
        owners = {item.owner for item in self._distributions.values() if item.components}
        native: list[Binary | ClosedFile] = [*image.inventory.binaries, *image.inventory.closed]
        for file in native if owners else ():
            if file.owner in owners:
                self._files.setdefault(file.owner, []).append(file.path)

    def libraries(self, owner: str) -> tuple[NativeComponent, ...]:
        """Return an owner's vendor components by path; the empty owner is no distribution."""
        distribution = self._distributions.get(owner)
        names = (
            {_plain(_name(purl)) for purl in distribution.components} - {""}
            if distribution is not None and distribution.components
            else None
        )
        libraries = []
        for (path, vendor), items in sorted(self._held.get(owner, {}).items()):
            binary = self._binaries.get(path)
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

    def sbom(self, owner: str) -> Iterator[SbomComponent]:
        """Yield the components in the SBOMs of a distribution."""
        distribution = self._distributions.get(owner)
        if distribution is None:
            return
        stems = frozenset(map(_stem, self._files.get(owner, ()))) - {""}
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


# Composition of a target


#: Files of a distribution that are listed, and the share of the target's bytes that each has.
_FILES, _LEAST = 12, 0.002


def compose(
    image: ImageSubject, verdicts: Iterable[Verdict], installed: Mapping[str, int] | None = None
) -> Composition:
    """Divide the bytes of a target by owner, vendor and use.

    `verdicts` determine the wasted bytes of a distribution, so that all reports agree. `installed`
    are the bytes of distributions by name, if the inventory does not have all their files.
    """
    sizes = Counter[str]()
    for item in image.inventory.distributions:
        owner = item.owner
        # Distributions in two places, such as two virtual environments, count twice.
        on_disk = None if installed is None else installed.get(item.name)
        sizes[owner] = on_disk if on_disk is not None else sizes[owner] + item.size
    whole = max(image.inventory.stats.bytes_total if installed is None else 0, sizes.total())
    sizes[""] = whole - sizes.total()
    judged = {verdict.owner: verdict for verdict in verdicts}
    held: dict[str, list[Evidence]] = {}
    for seen in image.evidence:
        if seen.weight == "strong" and (seen.kind in HELD or seen.kind == "declared"):
            held.setdefault(seen.distribution or "", []).append(seen)
    files = _files(image)
    links = _links(image)
    inside = Contents(image)
    required_by = askers(image)
    parts: list[DistributionBytes] = []
    layers = Counter[int]()
    origins = image.inventory.origins
    places = {item.owner: item.path for item in image.inventory.distributions}
    for owner, size in sizes.items():
        libraries = inside.libraries(owner)
        if not size and not owner and not libraries:
            continue
        name, _, version = owner.partition("==")
        part = _Part(image, owner, size, judged.get(owner), held.get(owner, ()))
        chain = image.chain_to(name) if name else ()
        is_line = bool(chain) and chain[0].rpartition(":")[2].isdigit()
        parts.append(
            DistributionBytes(
                name,
                version,
                chain[0] if is_line else "",
                chain[1] if is_line and len(chain) > 1 else "",
                size,
                part.wasted,
                part.vendors(),
                tuple(part.files(files.get(owner, {}), whole)),
                tuple(sorted(links.get(owner, ()))),
                required_by.get(name, ()),
                libraries,
                tuple(inside.sbom(owner)),
            )
        )
        if part.is_wholly_wasted and places.get(owner) in origins:
            layers[origins[places[owner]]] += part.wasted
        else:
            for path, bytes_ in part.wasted_files.items():
                if path in origins:
                    layers[origins[path]] += bytes_
    return Composition(
        tuple(sorted(parts, key=lambda part: (-part.size, part.name, part.version))),
        tuple(
            LayerBytes(
                layer.instruction,
                layer.size,
                layer.hidden,
                min(layers[index], max(0, layer.size - layer.hidden)),
                layer.is_base,
            )
            for index, layer in enumerate(image.inventory.layers)
        ),
        _list_system_components(image.inventory) or None,
    )


def _list_system_components(inventory: Inventory) -> tuple[SystemComponent, ...]:
    components = {
        SystemComponent(
            package.name,
            package.version,
            _make_purl(package, inventory.operating_system),
            package.vendor,
            package.license,
        )
        for package in inventory.system_packages
    }
    return tuple(sorted(components, key=lambda item: (item.purl, item.vendor, item.license)))


def _make_purl(package: SystemPackage, operating_system: str) -> str:
    """Return the package URL (purl-spec: deb, apk, rpm)."""
    name, version = package.name, package.version
    distribution, _, release = operating_system.partition(" ")
    qualifiers = {"arch": package.architecture, "distro": f"{distribution}-{release}"}
    if not release:
        del qualifiers["distro"]
    if package.kind == "rpm" and ":" in version:
        # For RPM alone the epoch is no part of the version.
        qualifiers["epoch"], _, version = version.partition(":")
    namespace = f"{quote(distribution, safe=_PLAIN)}/" if distribution else ""
    ends = "&".join(
        f"{key}={quote(value, safe=_PLAIN)}" for key, value in qualifiers.items() if value
    )
    return (
        f"pkg:{package.kind}/{namespace}{quote(name, safe=_PLAIN)}@{quote(version, safe=_PLAIN)}"
        + (f"?{ends}" if ends else "")
    )


class _Part:
    """One distribution while its bytes are given to vendors."""

    def __init__(
        self,
        image: ImageSubject,
        owner: str,
        size: int,
        verdict: Verdict | None,
        evidence: Iterable[Evidence],
    ) -> None:
        items = list(evidence)
        # A system package that is declared is one of many that belong to no distribution.
        declared = [item for item in items if item.kind == "declared" and owner]
        self._size = size
        #: Vendor of all of it, where its name says so.
        self._whole = declared[0].vendor if declared else ""
        #: Path, vendor -> bytes.
        self._held: dict[tuple[str, str], int] = {}
        self.wasted_files: dict[str, int] = {}
        foreign: dict[str, tuple[int, str]] = {}
        for item in items:
            if item.kind == "declared":
                continue
            place = item.path, item.vendor
            self._held[place] = max(item.size, self._held.get(place, 0))
            if image.is_foreign(item):
                foreign[item.path] = max((item.size, item.vendor), foreign.get(item.path, (0, "")))
        self.wasted = 0
        self._wasted = Counter[str]()
        # Files without a distribution have no verdict; foreign ones are wasted.
        if (verdict is None and owner) or (verdict is not None and verdict.verdict == "ok"):
            return
        most = sum(bytes_ for bytes_, _ in foreign.values())
        self.wasted = min(size, verdict.foreign_bytes if verdict is not None else most)
        if declared and image.is_foreign(declared[0]):
            self._wasted[declared[0].vendor] = self.wasted
            return
        self.wasted_files = {path: bytes_ for path, (bytes_, _) in foreign.items()}
        for bytes_, vendor in sorted(foreign.values(), reverse=True):
            self._wasted[vendor] += min(bytes_, self.wasted - self._wasted.total())
        left = self.wasted - self._wasted.total()
        if left > 0:
            self._wasted[verdict.vendors[0] if verdict and verdict.vendors else ""] += left

    @property
    def is_wholly_wasted(self) -> bool:
        """Return True if all of it is wasted, not single files."""
        return bool(self.wasted) and not self.wasted_files

    def vendors(self) -> tuple[VendorBytes, ...]:
        """Return its bytes by vendor. Packed content counts up to the size of its file."""
        sizes = Counter[str]()
        if self._whole:
            sizes[self._whole] = self._size
        else:
            for (_, vendor), bytes_ in self._held.items():
                sizes[vendor] += bytes_
        for vendor, bytes_ in self._wasted.items():
            sizes[vendor] = max(sizes[vendor], bytes_)
        left = self._size - self._wasted.total()
        shares: list[VendorBytes] = []
        for vendor, bytes_ in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
            wasted = self._wasted[vendor]
            used = min(bytes_ - wasted, left) if vendor else 0
            left -= used
            if vendor and (used or wasted):
                shares.append(VendorBytes(vendor, used + wasted, wasted))
        if left or self._wasted[""]:
            shares.append(VendorBytes("", left + self._wasted[""], self._wasted[""]))
        return tuple(sorted(shares, key=lambda share: (-share.size, share.vendor)))

    def files(self, sizes: Mapping[str, int], whole: int) -> Iterator[FileBytes]:
        """Its largest files."""
        largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        left, waste = self._size, self.wasted
        for path, size in largest[:_FILES]:
            if size < _LEAST * whole or size > left:
                return
            vendors = [
                (bytes_, vendor) for (place, vendor), bytes_ in self._held.items() if place == path
            ]
            held, vendor = (size, self._whole) if self._whole else max(vendors, default=(0, ""))
            wasted = size if self.is_wholly_wasted else self.wasted_files.get(path, 0)
            wasted = min(size, wasted, waste)
            left, waste = left - size, waste - wasted
            yield FileBytes(path, size, vendor, min(size, held), wasted)


def _files(image: ImageSubject) -> Mapping[str, Mapping[str, int]]:
    """Owner -> path -> bytes, of the files that matter to programs."""
    inventory = image.inventory
    inside: list[Binary | Artefact] = [*inventory.binaries, *inventory.artefacts]
    outside: list[Binary | Artefact | Container | ClosedFile] = [
        *(item for item in inside if item.container is None),
        *inventory.containers,
        *inventory.closed,
    ]
    files: dict[str, dict[str, int]] = {}
    for item in outside:
        files.setdefault(item.owner or "", {})[item.path] = item.size
    return files


def _links(image: ImageSubject) -> Mapping[str, set[str]]:
    """Map each owner to the names of other distributions with libraries that its binaries link."""
    linked: list[Binary | ClosedFile] = [*image.inventory.binaries, *image.inventory.closed]
    owners = {item.path: item.owner for item in linked}
    links: dict[str, set[str]] = {}
    for needed in image.resolution.needed:
        source = owners.get(needed.binary)
        path = needed.path or next(iter(needed.anywhere), None)
        target = owners.get(path) if path is not None else None
        if source and target and source != target:
            links.setdefault(source, set()).add(target.partition("==")[0])
    return links
