"""Data files → one catalogue, indexed for lookups by name.

buildmatrix's own files are in `data/`. Several files may describe one backend: their entries add
up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue import entries, tables
from buildmatrix.catalogue.datafile import read, read_file
from buildmatrix.catalogue.entries import Basis, CatalogueEntry, DistributionEntry
from buildmatrix.catalogue.model import (
    BackendEntry,
    Confidence,
    GlobIndex,
    IndexRoute,
    Release,
    library_patterns,
    product_patterns,
)
from buildmatrix.catalogue.tables import DataFile

EntryT = TypeVar("EntryT", bound=CatalogueEntry)
EntryT_co = TypeVar("EntryT_co", bound=CatalogueEntry, covariant=True)

#: Between the names of a title, but not inside of brackets: `AWS Neuron (Inferentia / Trainium)`.
_FIRST_NAME = re.compile(r" / (?![^(]*\))")
#: Confidence in an entry, by its source.
CONFIDENCE: Mapping[Basis, Confidence] = {
    "verified": "high",
    "documented": "high",
    "inferred": "medium",
    "memory": "low",
}


class Owned(Struct, Generic[EntryT_co], frozen=True):
    """An entry, and its owner."""

    entry: EntryT_co
    backend: str
    vendor: str | None
    #: The glob of the entry that this stands for in an index.
    glob: str

    @property
    def confidence(self) -> Confidence:
        """Confidence in the entry."""
        return CONFIDENCE[self.entry.basis]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Content of all data files."""

    #: Date of the newest file, `YYYY-MM-DD`.
    date: str
    backends: Mapping[str, BackendEntry]
    libraries: GlobIndex[Owned[entries.LibraryEntry]]
    distributions: GlobIndex[Owned[DistributionEntry]]
    #: Name of a conda package -> the distribution that it installs under another name.
    conda: Mapping[str, str]
    channels: GlobIndex[Owned[entries.ChannelEntry]]
    local_versions: Sequence[Owned[entries.LocalVersion]]
    source_traces: Sequence[Owned[entries.SourceTrace]]
    modules: GlobIndex[Owned[entries.ModuleEntry]]
    system_packages: GlobIndex[Owned[entries.SystemPackageEntry]]
    roots: GlobIndex[Owned[entries.Root]]
    environment: GlobIndex[Owned[entries.EnvironmentEntry]]
    images: GlobIndex[Owned[entries.ImageEntry]]
    sections: GlobIndex[Owned[entries.SectionEntry]]
    device_code: Sequence[Owned[entries.DeviceCodeEntry]]
    artifacts: Sequence[Owned[entries.ArtifactEntry]]
    frameworks: Sequence[Owned[entries.Framework]]
    static: Sequence[Owned[entries.Static]]
    tools: GlobIndex[Owned[entries.ToolEntry]]
    exceptions: Sequence[Owned[entries.ExceptionRule]]
    hosts: Sequence[Owned[tables.Host]]
    checks: Sequence[Owned[tables.HostCheck]]
    framework_devices: Sequence[Owned[tables.FrameworkDevices]]
    caches: Sequence[Owned[entries.CacheEntry]]
    #: By their names as `names.product_words` has them.
    products: GlobIndex[Owned[tables.Product]]
    #: What runs on which driver: `catalogue.drivers`.
    toolkit_drivers: Sequence[Owned[tables.ToolkitDriver]]
    driver_floors: Sequence[Owned[tables.DriverFloor]]
    driver_pairs: Sequence[Owned[tables.DriverPair]]
    driver_releases: Sequence[Owned[tables.DriverRelease]]
    kernel_floors: Sequence[Owned[tables.KernelFloor]]
    code_versions: Sequence[Owned[tables.CodeVersion]]
    runtime_versions: Sequence[Owned[tables.RuntimeVersion]]
    forward_compatibility: Sequence[Owned[tables.ForwardCompatibility]]
    conditions: Sequence[Owned[tables.Condition]]
    brands: Sequence[Owned[tables.Brand]]
    framework_libraries: Sequence[Owned[tables.FrameworkLibraries]]
    library_distributions: Sequence[Owned[tables.LibraryDistribution]]
    library_packages: Sequence[Owned[tables.LibraryPackage]]
    stated_versions: Sequence[Owned[tables.StatedVersion]]
    version_pairs: Sequence[Owned[tables.VersionPair]]
    image_labels: Sequence[Owned[tables.ImageLabel]]
    redistribution: Sequence[Owned[entries.Redistribution]]
    variant_features: Sequence[Owned[tables.VariantFeature]]
    node_labels: Sequence[Owned[tables.NodeLabel]]
    node_resources: Sequence[Owned[tables.NodeLabel]]
    #: By name: the source of the lookups above.
    files: Mapping[str, DataFile]
    #: `distributions`, including entries about other platforms.
    all_distributions: GlobIndex[Owned[DistributionEntry]]
    #: Results of `on`, by platform.
    narrowed: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def on(self, platform: str) -> Catalogue:
        """Return the catalogue without entries about public files for other platforms."""
        narrowed: Catalogue | None = self.narrowed.get(platform)
        if narrowed is None:
            files = tuple(self.files.values())
            narrowed = replace(self, distributions=_distributions(files, platform))
            self.narrowed[platform] = narrowed
        return narrowed

    def vendor_of(self, backend: str) -> str | None:
        """Return the vendor of a backend; None if it has none or is unknown."""
        entry = self.backends.get(backend)
        return entry.vendor if entry is not None else None

    def title(self, backend: str) -> str:
        """Return the name of a backend in sentences: `NVIDIA CUDA` for `cuda`."""
        entry = self.backends.get(backend)
        return _FIRST_NAME.split(entry.title, maxsplit=1)[0] if entry else backend


def load(extra: Sequence[Path] = ()) -> Catalogue:
    """Load the catalogue of buildmatrix and the user's own data files.

    Read once per process. A missing or broken file raises `SpecError` with its name and line.
    """
    return _load(tuple(extra))


def load_texts(extra: Mapping[str, str]) -> Catalogue:
    """Load the catalogue with the data files in `extra`, name → text. Raises `SpecError`."""
    own = {name: read(name, text.encode()) for name, text in extra.items()}
    return catalogue({**_own(), **own})


@lru_cache(maxsize=8)
def _load(extra: tuple[Path, ...]) -> Catalogue:
    return catalogue({**_own(), **{str(path): read_file(path) for path in extra}})


@lru_cache(maxsize=1)
def _own() -> Mapping[str, DataFile]:
    """Read buildmatrix's own files, by name, or what `tools/compile_catalogue.py` made of them."""
    package = Path(__file__).parent
    if (compiled := package / "data.msgpack").is_file():
        decoder = msgspec.msgpack.Decoder(prepare_type(dict[str, DataFile]))
        return decoder.decode(compiled.read_bytes())
    return {
        item.name: read(item.name, item.read_bytes(), is_own=True)
        for item in sorted((package / "data").glob("*.toml"))
    }


def catalogue(named: Mapping[str, DataFile]) -> Catalogue:
    """Build the catalogue of these files, by name; at least one."""
    files = tuple(named.values())
    distributions = _distributions(files)
    by_name: dict[str, Any] = {name: _index(files, name) for name in INDEXES}
    by_name |= {name: _sequence(files, name) for name in SEQUENCES}
    return Catalogue(
        date=max(file.checked for file in files).isoformat(),
        backends=_backends(named),
        distributions=distributions,
        all_distributions=distributions,
        conda={
            name: entry.distribution
            for file in files
            for entry in file.conda
            for name in entry.names
        },
        files=dict(named),
        **by_name,
    )


def _distributions(
    files: Iterable[DataFile], platform: str | None = None
) -> GlobIndex[Owned[DistributionEntry]]:
    return GlobIndex(
        (glob.partition("+")[0], Owned(entry, file.backend, file.vendor, glob))
        for file in files
        for entry in file.distributions
        if platform is None or not entry.platforms or platform in entry.platforms
        for glob in entry.names
    )


#: Tables that the catalogue has unchanged, one file after the other: the annotated ones.
SEQUENCES = tuple(item.name for item in fields(Catalogue) if "Sequence[" in item.type)
#: Tables that are found by the globs of their entries.
INDEXES = tuple(
    item.name
    for item in fields(Catalogue)
    if "GlobIndex[" in item.type and "distributions" not in item.name
)
#: Keys of a glob, for tables whose texts are looked up in another form.
_KEYS: Mapping[str, Callable[[str], Iterable[str]]] = {
    "libraries": library_patterns,
    "products": product_patterns,
}


def _sequence(files: Iterable[DataFile], table: str) -> tuple[Owned[Any], ...]:
    return tuple(
        Owned(entry, file.backend, file.vendor, "")
        for file in files
        for entry in getattr(file, table)
    )


def _index(files: Iterable[DataFile], table: str) -> GlobIndex[Owned[Any]]:
    keys = _KEYS.get(table)
    return GlobIndex(
        (key, Owned(entry, file.backend, file.vendor, glob))
        for file in files
        for entry in getattr(file, table)
        for glob in (entry.paths if table == "roots" else entry.names)
        for key in (keys(glob) if keys is not None else (glob,))
    )


def _backends(files: Mapping[str, DataFile]) -> Mapping[str, BackendEntry]:
    """Return one entry per backend. Its first file names it; the others may only add to it."""
    backends: dict[str, BackendEntry] = {}
    for name, file in files.items():
        entry = backends.get(file.backend)
        if entry is None:
            entry = BackendEntry(file.backend, file.vendor, file.title)
        elif entry.vendor != file.vendor:
            message = (
                f"the backend {file.backend!r} has the vendor {entry.vendor!r} in another file, "
                f"and {file.vendor!r} here"
            )
            hint = "a file that adds to a backend must have the same `vendor`"
            raise SpecError([Problem(message, name, hint=hint)])
        backends[file.backend] = replace(
            entry,
            aliases=(*entry.aliases, *(name for name in file.aliases if name != file.backend)),
            indexes=(*entry.indexes, *_routes(file)),
            releases=(*entry.releases, *_releases(file)),
            images=tuple(
                dict.fromkeys(
                    (*entry.images, *(name for image in file.images for name in image.names))
                )
            ),
            products=(
                *entry.products,
                *(name for product in file.products for name in product.names),
            ),
        )
    return backends


def _routes(file: DataFile) -> Iterator[IndexRoute]:
    for entry in file.indexes:
        for name, toolkit in entry.routes.items():
            yield IndexRoute(entry.family, name, toolkit or None)


def _releases(file: DataFile) -> Iterator[Release]:
    for entry in file.indexes:
        for version, routes in entry.releases.items():
            yield Release(entry.family, version, routes)
