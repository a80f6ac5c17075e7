"""Lookups in the catalogue: vendor of a library, distribution or image; builds of images."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.base.parsing import parse_specifiers, version_or_none
from buildmatrix.catalogue.datafile import replacement
from buildmatrix.catalogue.entries import (
    BuildPart,
    DistributionEntry,
    LibraryEntry,
    RunOptions,
    StartingBase,
    WheelOrigin,
)
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.model import (
    WHOLE,
    DistributionMatch,
    Weight,
    demangle,
    library_names,
    matches,
    matches_any,
    version_of,
)
from buildmatrix.facts.inventory.conda import CONDA_PREFIX, PREFIX
from buildmatrix.facts.inventory.listing import distribution_name


class LibraryMatch(Struct, frozen=True):
    """A backend that a library belongs to."""

    owned: Owned[LibraryEntry]
    #: The entry's weight, or `weak` for a name that several vendors have.
    weight: Weight
    #: Toolkit lines that have it in this version; empty if unknown.
    lines: tuple[str, ...] = ()

    @property
    def toolkit(self) -> str | None:
        """The toolkit line, if the version belongs to a single one."""
        return self.lines[0] if len(self.lines) == 1 else None


def library(name: str, path: str | None, catalogue: Catalogue) -> tuple[LibraryMatch, ...]:
    """Return the backends of the library `name`; empty for a neutral or unknown one.

    `name` is a file name, a SONAME or a NEEDED entry, mangled or not; `path` is the path of the
    file, None if only the name was seen. A neutral entry wins over all others, a strong one over
    weak ones. A name that two vendors have with equal weight proves neither.
    """
    first: dict[str, Owned[LibraryEntry]] = {}
    for candidate in library_names(name):
        for owned in catalogue.libraries.find(candidate):
            under = owned.entry.under
            if under and not (path is not None and matches_any(under, path)):
                continue
            if owned.entry.weight == "neutral":
                return ()
            first.setdefault(owned.backend, owned)
    claims = list(first.values())
    strong = [owned for owned in claims if owned.entry.weight == "strong"]
    claims = strong or claims
    shared = len({owned.vendor for owned in claims}) > 1
    return tuple(
        LibraryMatch(
            owned, "weak" if shared else owned.entry.weight, _lines(owned.entry.toolkits, name)
        )
        for owned in claims
    )


def common_names(
    name: str, backends: Collection[str], catalogue: Catalogue
) -> tuple[LibraryMatch, ...]:
    """Return weak matches: entries of these backends that count only in a vendor's folder."""
    return tuple(
        LibraryMatch(owned, "weak", _lines(owned.entry.toolkits, name))
        for owned in catalogue.libraries.find(demangle(name))
        if owned.entry.under and owned.backend in backends and owned.entry.weight != "neutral"
    )


def _lines(toolkits: Mapping[str, str | tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Return the toolkit lines of the version in `name`, by the longest prefix that is known."""
    components = version_of(name).split(".")
    for count in range(len(components), 0, -1):
        lines = toolkits.get(".".join(components[:count]))
        if lines is not None:
            return (lines,) if isinstance(lines, str) else lines
    return ()


def distribution(name: str, version: str, catalogue: Catalogue) -> DistributionMatch | None:
    """Return the catalogue's statement about a distribution; None if there is none.

    A local version names the backend of a build, so it wins over the name. Replacements still come
    from the entries of the name. A package of conda is never the public wheel of its name: only
    entries that hold for all builds of a name count for it.
    """
    public, _, local = version.partition("+")
    if name.startswith(PREFIX):
        local = ""  # Build metadata of semver, which is no part of a version's identity.
    name = distribution_name(name)
    entries = list(catalogue.distributions.find(name))
    if name.startswith(CONDA_PREFIX):
        plain = catalogue.distributions.find(distribution_name(name.removeprefix(CONDA_PREFIX)))
        entries += (owned for owned in plain if owned.entry.kind in WHOLE)
    named, built = [], []
    for owned in entries:
        _, separator, wanted = owned.glob.partition("+")
        if not separator:
            named.append(owned)
        elif local and matches(wanted, local):
            built.append(owned)
    by_name = _by_name(named, public)
    by_local = _by_local(local, catalogue) if local else None
    if by_local is not None and by_local.vendor is None and by_name is not None:
        # A vendor's own package of conda has no build without the vendor, whatever its build says.
        by_local = None if by_name.entry.startswith(CONDA_PREFIX) else by_local
    matches_of_parts = (_by_name(built, public), by_local, by_name)
    distribution_matches = [match for match in matches_of_parts if match is not None]
    if not distribution_matches:
        return None
    best = distribution_matches[0]
    same = [match for match in distribution_matches if match.backend == best.backend]
    return replace(
        best,
        toolkit=next((match.toolkit for match in same if match.toolkit is not None), None),
        build=next((match.build for match in same if match.build), local if built else ""),
        replace={
            key: order
            for match in reversed(distribution_matches)
            for key, order in match.replace.items()
        },
    )


def build_of(name: str, catalogue: Catalogue) -> DistributionMatch | None:
    """Return the catalogue's statement about a public build of a distribution, on any platform."""
    entries = catalogue.all_distributions.find(distribution_name(name))
    return _by_name([owned for owned in entries if "+" not in owned.glob], "")


def _by_name(entries: list[Owned[DistributionEntry]], version: str) -> DistributionMatch | None:
    """Return the most exact entry, completed from less exact ones of its backend."""
    entries = [owned for owned in entries if _is_about(owned.entry.versions, version)]
    if not entries:
        return None
    best = entries[0]
    same = [owned.entry for owned in entries if owned.backend == best.backend]
    replacements = {
        backend: order
        for entry in reversed(same)
        for backend, text in entry.replace.items()
        if (order := replacement(text)) is not None
    }
    toolkit = next((entry.toolkit for entry in same if entry.toolkit is not None), None) or None
    if toolkit == "version":
        toolkit = version.partition(".")[0]
    elif toolkit is not None and "(?P<toolkit>" in toolkit:
        match = _pattern(toolkit).search(version)
        toolkit = match["toolkit"] if match is not None else None
    return DistributionMatch(
        vendor=best.vendor,
        backend=best.backend,
        kind=best.entry.kind,
        weight=best.entry.weight,
        toolkit=toolkit,
        replace=replacements,
        entry=best.glob,
        confidence=best.confidence,
        tolerated_in=best.entry.tolerated_in,
        extras=next((entry.extras for entry in same if entry.extras is not None), None),
        needs_device=any(entry.needs_device for entry in same),
    )


def _is_about(versions: str, version: str) -> bool:
    """Return True if an entry counts for a version, or if the version is unknown."""
    own = version_or_none(version)
    return not versions or own is None or parse_specifiers(versions).contains(own, prereleases=True)


def _by_local(local: str, catalogue: Catalogue) -> DistributionMatch | None:
    """Return the backend that a local version names first: `cu121` in `pt21cu121`."""
    local = local.lower()
    found = [
        (match.start(), owned, match)
        for owned in catalogue.local_versions
        if (match := _pattern(f"(?<![a-z])(?:{owned.entry.pattern})").search(local)) is not None
    ]
    if not found:
        return None
    start, owned, match = min(found, key=lambda item: item[0])
    return DistributionMatch(
        vendor=owned.vendor,
        backend=owned.backend,
        kind="native",
        weight=owned.entry.weight,
        toolkit=match.groupdict().get("toolkit"),
        replace={},
        entry=f"*+{owned.entry.pattern}",
        confidence=owned.confidence,
        build=local[start:],
    )


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def toolkit_in(value: str, pattern: str | None) -> str | None:
    """Return the toolkit line at the start of an environment variable's value."""
    match = _pattern(pattern).match(value) if pattern is not None else None
    return match.groupdict().get("toolkit") if match else None


def image(reference: str, catalogue: Catalogue) -> str | None:
    """Return the backend that a base image is made for; None for an unknown repository.

    The host of the registry and leading folders do not count: companies mirror public images.
    """
    repository = reference.partition("@")[0]
    folder, slash, last = repository.rpartition("/")
    parts = f"{folder}{slash}{last.partition(':')[0]}".split("/")
    for start in range(len(parts)):
        for owned in catalogue.images.find("/".join(parts[start:])):
            return owned.backend
    return None


def find_backend(name: str, catalogue: Catalogue) -> str:
    """Return the backend with this name or alias. Raises `UsageError`."""
    if name in catalogue.backends:
        return name
    for entry in catalogue.backends.values():
        if name in entry.aliases:
            return entry.name
    raise unknown_backend(name, catalogue.backends)


def unknown_backend(name: str, backends: Iterable[str]) -> UsageError:
    """Return the error for a backend that is none of `backends`."""
    names = ", ".join(sorted(backends))
    return UsageError(f"there is no backend {name!r}; the catalogue knows {names}")


class BackendBuild(Struct, frozen=True):
    """Differences between images of one backend and of others."""

    title: str
    #: With variables: of the stage that installs the wheels, and of the image.
    build: tuple[BuildPart, ...] = ()
    final: tuple[BuildPart, ...] = ()
    #: Of the image's user.
    groups: tuple[str, ...] = ()
    #: Debian packages of the image, and the same as dnf knows them.
    packages: tuple[str, ...] = ()
    rpm_packages: tuple[str, ...] = ()
    #: Folder where a container runtime puts the libraries of the host.
    library_folders: tuple[str, ...] = ()
    #: Libraries that the host provides, and that no image should have.
    host_libraries: tuple[str, ...] = ()
    #: Defaults of a first specification, with the source that such an image exists.
    base: StartingBase | None = None
    base_sources: tuple[str, ...] = ()
    wheels: tuple[WheelOrigin, ...] = ()
    runs: tuple[RunOptions, ...] = ()
    #: Reason why no image can be built, if so.
    unbuildable: str | None = None


def first_base(
    catalogue: Catalogue, backend: str, distribution: str = ""
) -> tuple[StartingBase | None, tuple[str, ...]]:
    """Return the base image of a backend for `init`, with its sources; None if none is known."""
    for file in catalogue.files.values():
        for base in file.bases if file.backend == backend else ():
            if base.distribution == distribution:
                return base, tuple(file.sources[key] for key in base.source)
    return None, ()


def backend_build(catalogue: Catalogue, backend: str) -> BackendBuild:
    """Return the build settings of `backend`, which need not be known."""
    files = [file for file in catalogue.files.values() if file.backend == backend]
    parts = [part for file in files for part in file.build]
    in_image = [part for part in parts if part.stage == "final"]
    base, sources = first_base(catalogue, backend)
    return BackendBuild(
        title=files[0].title if files else backend,
        build=tuple(part for part in parts if part.stage == "build" and part.variables),
        final=tuple(part for part in in_image if part.variables),
        groups=_unique(part.groups for part in in_image),
        packages=_unique(part.packages for part in in_image),
        rpm_packages=_unique(part.rpm_packages for part in in_image),
        library_folders=_unique(part.library_folders for part in in_image),
        host_libraries=_unique(
            entry.names for file in files for entry in file.libraries if entry.where == "host"
        ),
        base=base,
        base_sources=sources,
        wheels=tuple(origin for file in files for origin in file.wheels),
        runs=tuple(run for file in files for run in file.runs),
        unbuildable=next((entry.reason for file in files for entry in file.unbuildable), None),
    )


def _unique(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    def names() -> Iterator[str]:
        for group in groups:
            yield from group

    return tuple(dict.fromkeys(names()))
