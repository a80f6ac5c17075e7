"""The tables of one data file."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator

import msgspec

from buildmatrix.catalogue.format.artifacts import ArtifactEntry, CacheEntry, Framework
from buildmatrix.catalogue.format.building import (
    BuildPart,
    RunOptions,
    StartingBase,
    Unbuildable,
    WheelOrigin,
)
from buildmatrix.catalogue.format.entry import CatalogueEntry
from buildmatrix.catalogue.format.machines import (
    FrameworkDevices,
    Host,
    HostCheck,
    NodeLabel,
    Product,
)
from buildmatrix.catalogue.format.names import (
    CondaPackageEntry,
    DeviceCodeEntry,
    DistributionEntry,
    EnvironmentEntry,
    ExceptionRule,
    ImageEntry,
    LibraryEntry,
    LocalVersion,
    ModuleEntry,
    Redistribution,
    Root,
    Route,
    SectionEntry,
    SourceTrace,
    Static,
    SystemPackageEntry,
    ToolEntry,
)
from buildmatrix.catalogue.format.versions import (
    Brand,
    CodeVersion,
    Condition,
    DriverFloor,
    DriverPair,
    DriverRelease,
    ForwardCompatibility,
    FrameworkLibraries,
    ImageLabel,
    KernelFloor,
    LibraryDistribution,
    LibraryPackage,
    RuntimeVersion,
    StatedVersion,
    ToolkitDriver,
    VariantFeature,
    VersionPair,
)

#: The version of this format; a file says it in its key `schema`.
SCHEMA = 1


class DataFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """One data file: what one backend is known by."""

    schema: int
    backend: str
    #: Absent for what belongs to no vendor.
    vendor: str | None = None
    title: str
    aliases: tuple[str, ...] = ()
    checked: datetime.date
    sources: dict[str, str]
    libraries: tuple[LibraryEntry, ...] = ()
    distributions: tuple[DistributionEntry, ...] = ()
    conda: tuple[CondaPackageEntry, ...] = ()
    source_traces: tuple[SourceTrace, ...] = ()
    local_versions: tuple[LocalVersion, ...] = ()
    modules: tuple[ModuleEntry, ...] = ()
    system_packages: tuple[SystemPackageEntry, ...] = ()
    roots: tuple[Root, ...] = ()
    environment: tuple[EnvironmentEntry, ...] = ()
    images: tuple[ImageEntry, ...] = ()
    sections: tuple[SectionEntry, ...] = ()
    device_code: tuple[DeviceCodeEntry, ...] = ()
    artifacts: tuple[ArtifactEntry, ...] = ()
    frameworks: tuple[Framework, ...] = ()
    static: tuple[Static, ...] = ()
    tools: tuple[ToolEntry, ...] = ()
    indexes: tuple[Route, ...] = ()
    exceptions: tuple[ExceptionRule, ...] = ()
    hosts: tuple[Host, ...] = ()
    checks: tuple[HostCheck, ...] = ()
    framework_devices: tuple[FrameworkDevices, ...] = ()
    caches: tuple[CacheEntry, ...] = ()
    build: tuple[BuildPart, ...] = ()
    bases: tuple[StartingBase, ...] = ()
    wheels: tuple[WheelOrigin, ...] = ()
    runs: tuple[RunOptions, ...] = ()
    unbuildable: tuple[Unbuildable, ...] = ()
    products: tuple[Product, ...] = ()
    toolkit_drivers: tuple[ToolkitDriver, ...] = ()
    driver_floors: tuple[DriverFloor, ...] = ()
    driver_pairs: tuple[DriverPair, ...] = ()
    driver_releases: tuple[DriverRelease, ...] = ()
    kernel_floors: tuple[KernelFloor, ...] = ()
    code_versions: tuple[CodeVersion, ...] = ()
    runtime_versions: tuple[RuntimeVersion, ...] = ()
    forward_compatibility: tuple[ForwardCompatibility, ...] = ()
    conditions: tuple[Condition, ...] = ()
    brands: tuple[Brand, ...] = ()
    framework_libraries: tuple[FrameworkLibraries, ...] = ()
    library_distributions: tuple[LibraryDistribution, ...] = ()
    library_packages: tuple[LibraryPackage, ...] = ()
    stated_versions: tuple[StatedVersion, ...] = ()
    version_pairs: tuple[VersionPair, ...] = ()
    image_labels: tuple[ImageLabel, ...] = ()
    redistribution: tuple[Redistribution, ...] = ()
    variant_features: tuple[VariantFeature, ...] = ()
    node_labels: tuple[NodeLabel, ...] = ()
    node_resources: tuple[NodeLabel, ...] = ()


@functools.cache
def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    """The keys of a file; to evaluate their types takes longer than to read one."""
    return msgspec.structs.fields(DataFile)


def entries(file: DataFile) -> Iterator[tuple[str, int, CatalogueEntry]]:
    """All entries of a file, with the name of their table and their number in it."""
    for field in _fields():
        value = getattr(file, field.name)
        if isinstance(value, tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, CatalogueEntry):
                    yield field.encode_name, number, entry
