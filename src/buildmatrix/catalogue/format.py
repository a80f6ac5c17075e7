"""What a data file of the catalogue may hold; `docs/catalogue.md` describes it for its authors.

The classes are the file's tables. msgspec checks types, allowed values and unknown keys when it
builds them, so whoever holds one need not check again. Globs are those of `fnmatch`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from buildmatrix.catalogue.model import (
    DistributionKind,
    EvidenceKind,
    LeftoverKind,
    Weight,
    Where,
)

#: The version of this format; a file says it in its key `schema`.
SCHEMA = 1

#: How an entry is known. `verified`: read off a real file, or off real package metadata.
#: `documented`: a named public source says so. `inferred`: read into observed data.
#: `memory`: well known, no source retrieved.
Basis = Literal["verified", "documented", "inferred", "memory"]


class CatalogueEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """What all entries have."""

    #: Keys of the file's table `sources`.
    source: tuple[str, ...]
    basis: Basis
    #: When the source was last looked at; default: the date of the file.
    checked: datetime.date | None = None
    note: str | None = None


class LibraryEntry(CatalogueEntry, frozen=True):
    """Names of shared libraries (and of static ones), as file names, SONAMEs and NEEDED have them.

    The components of a version are a prefix: `libnccl.so.2` also means `libnccl.so.2.30.7`, and
    `libcudart.so.*` means every version and none.
    """

    names: tuple[str, ...]
    role: str
    where: Where = "image"
    weight: Weight = "strong"
    #: Version in the soname -> toolkit line, or all lines that share it.
    toolkits: dict[str, str | tuple[str, ...]] = {}
    #: Globs of paths. Names that others use too count only for files that lie there.
    under: tuple[str, ...] = ()


class DistributionEntry(CatalogueEntry, frozen=True):
    """Names of Python distributions; `name+local` also asks for a local version, by glob."""

    names: tuple[str, ...]
    kind: DistributionKind
    weight: Weight = "strong"
    #: The toolkit line; `version`: the first component of the distribution's version.
    toolkit: str | None = None
    #: By backend: `ACTION [TARGET][; NOTE]`, see `model.Replacement`.
    replace: dict[str, str] = {}
    tolerated_in: tuple[str, ...] = ()
    #: For a meta package that installs nothing but by its extras: extra -> distributions.
    extras: dict[str, tuple[str, ...]] | None = None
    #: Whether all that it is for fails without a device of the backend.
    needs_device: bool = False


class CondaPackageEntry(CatalogueEntry, frozen=True):
    """Names of conda packages that install a Python distribution of another name."""

    names: tuple[str, ...]
    distribution: str


class LocalVersion(CatalogueEntry, frozen=True):
    """A local version (PEP 440) that names the backend a wheel was built for."""

    #: Regular expression from the start of the local version; a group `toolkit` gives the line.
    pattern: str
    weight: Weight = "strong"


class SystemPackageEntry(CatalogueEntry, frozen=True):
    """Names of packages of the system's package manager."""

    names: tuple[str, ...]
    where: Where = "image"
    weight: Weight = "strong"


class Root(CatalogueEntry, frozen=True):
    """Globs of paths where everything belongs to the backend, whatever it is called."""

    paths: tuple[str, ...]


class EnvironmentEntry(CatalogueEntry, frozen=True):
    """Environment variables of images."""

    names: tuple[str, ...]
    #: Globs of values that count; `toolkit` is only read from values that match.
    values: tuple[str, ...] = ("*",)
    #: Values that switch the backend off, and so say nothing.
    idle: tuple[str, ...] = ("",)
    weight: Weight = "weak"
    #: Regular expression from the start of the value, with a group `toolkit`.
    toolkit: str | None = None


class ImageEntry(CatalogueEntry, frozen=True):
    """Repositories of images made for the backend."""

    names: tuple[str, ...]


class SectionEntry(CatalogueEntry, frozen=True):
    """Sections that hold device code, for files whose containers could not be read."""

    names: tuple[str, ...]
    weight: Weight = "strong"


class DeviceCodeEntry(CatalogueEntry, frozen=True):
    """Device code by format, kind and architecture; all three must fit.

    As in `device_code.model.DeviceCode`.
    """

    formats: tuple[str, ...] = ("*",)
    kinds: tuple[str, ...] = ("*",)
    #: Globs; without them an entry also fits code whose architecture is unknown.
    architectures: tuple[str, ...] = ()
    weight: Weight = "strong"


class ArtifactEntry(CatalogueEntry, frozen=True):
    """Compiled networks by format, which only some versions of their library load."""

    formats: tuple[str, ...]
    #: `TensorRT engine`
    title: str
    library: str
    #: What brings the library in its version: globs of distributions; below, of packages of the
    #: system, and of files whose names end with the version.
    distributions: tuple[str, ...]
    #: Numbers of the version that must be equal.
    parts: Annotated[int, msgspec.Meta(ge=1, le=4)]
    system_packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: Major version that wrote it -> those of newer libraries that load what was built for that.
    newer_loads: dict[str, tuple[str, ...]] = {}
    #: Whether the library refuses all others; else it compiles again.
    refused: bool = True


class Framework(CatalogueEntry, frozen=True):
    """Names of distributions that compile for a device, or whose plugins do."""

    names: tuple[str, ...]


class Static(CatalogueEntry, frozen=True):
    """What proves that a runtime was linked in statically: any of `marks`."""

    name: str
    role: str
    #: The runtime as a shared library: it has its own marks, and is not linked into itself.
    shared: tuple[str, ...]
    marks: tuple[str, ...]
    weight: Weight = "strong"
    #: Bytes that it adds to a file, about.
    size: int = 0


class ToolEntry(CatalogueEntry, frozen=True):
    """File names of tools, device bitcode and the like."""

    names: tuple[str, ...]
    role: str = "compiler"
    where: Where = "image"
    weight: Weight = "strong"


class Route(CatalogueEntry, frozen=True):
    """Places that serve builds of a family of distributions."""

    family: str
    #: Name of the place, as uv knows it -> toolkit line; empty where it stands for none.
    routes: dict[str, str] = {}
    #: Release of the family (`2.6`) -> names of the places that serve builds of it.
    releases: dict[str, tuple[str, ...]] = {}


class ExceptionRule(CatalogueEntry, frozen=True):
    """What looks like evidence and is not, or is in a place where it belongs.

    All conditions that are given must hold; `neutral` as the weight removes the evidence.
    """

    #: Kinds of evidence.
    kinds: tuple[EvidenceKind, ...]
    #: Backends of the evidence; default: all.
    backends: tuple[str, ...] = ("*",)
    #: Globs of the library that was named, of the file that names it, and of that file's path.
    names: tuple[str, ...] = ("*",)
    files: tuple[str, ...] = ("*",)
    paths: tuple[str, ...] = ("*",)
    weight: Weight | None = None
    where: Where | None = None


class Host(CatalogueEntry, frozen=True):
    """How a machine shows that it has such devices: files that can be read without any tool.

    Nodes are globs of absolute paths, each of whose components a `*` or `?` may stand in.
    """

    #: One node per device.
    nodes: tuple[str, ...]
    #: PCI vendor, as sysfs writes it (`0x1002`), of nodes that other vendors have, too: their
    #: folder in `sysfs` has a file `device/vendor`.
    pci_vendor: str | None = None
    sysfs: str | None = None
    #: Nodes that a program needs beside the one of its device.
    needs: tuple[str, ...] = ()
    #: Kernel modules of the driver; `/sys/module/NAME/version` is the version of one.
    modules: tuple[str, ...] = ()
    #: Further files that contain it, and a regular expression whose first group it is in them.
    version_files: tuple[str, ...] = ()
    version: str = r"(\d+(?:\.\d+)+)"
    #: How containers get at it: kinds of CDI devices, and runtimes of the Docker daemon.
    cdi: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    #: Globs of files in `/proc` and `/sys`, one for each device, and a regular expression whose
    #: first group is the name of the device in them.
    product_files: tuple[str, ...] = ()
    product: str = r"(\S.*)"


class Product(CatalogueEntry, frozen=True):
    """Devices, by the names that their vendor's tools and Kubernetes labels have for them.

    A name also stands for itself with more words behind it (`NVIDIA H100` for `NVIDIA H100 PCIe`),
    and words are told apart by blanks, `-` or `_`.
    """

    names: tuple[str, ...]
    #: What device code for it is called; none where the backend's device code has no such names.
    architectures: tuple[str, ...] = ()
    #: Memory of one device, as its vendor says it: `80GB`.
    memory: str | None = None
    #: Globs of what one device can be divided into: `[1-7]g.*gb*`, `CPX*`.
    partitions: tuple[str, ...] = ()


class ToolkitDriver(CatalogueEntry, frozen=True):
    """The oldest driver that has everything of a toolkit."""

    #: Its first two numbers: `12.8`.
    toolkit: str
    driver: str
    update: int = 0


class DriverFloor(CatalogueEntry, frozen=True):
    """The oldest driver that runs anything of a toolkit line, newer minors with less features."""

    line: str
    driver: str


class DriverPair(CatalogueEntry, frozen=True):
    """Runtimes that are tested with a driver; versions are their first numbers (`6.3`)."""

    driver: str
    runtimes: tuple[str, ...]
    #: Runtimes that run with it in part, or of which sources disagree.
    partly: tuple[str, ...] = ()


class DriverRelease(CatalogueEntry, frozen=True):
    """That runtime and driver are of one release: so many first numbers are the same."""

    components: int


class KernelFloor(CatalogueEntry, frozen=True):
    """The oldest Linux kernel that has a device, by globs of architectures."""

    architectures: tuple[str, ...]
    kernel: str


class CodeVersion(CatalogueEntry, frozen=True):
    """What compiles device code of a kind (`ptx`) on the node."""

    kind: str
    #: Version of the language -> first toolkit whose driver compiles it.
    toolkits: dict[str, str]


class RuntimeVersion(CatalogueEntry, frozen=True):
    """What has the version of the runtime as its own; globs."""

    distributions: tuple[str, ...] = ()
    system_packages: tuple[str, ...] = ()
    #: Names of files, with the version behind `.so.`.
    libraries: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


class ForwardCompatibility(CatalogueEntry, frozen=True):
    """User-space halves of newer drivers, for hosts with an older one."""

    #: Names that such a library has with the version of the driver, and folders that it lies in.
    libraries: tuple[str, ...]
    folders: tuple[str, ...]
    #: Folder that the container runtime brings into reach where it helps.
    injected: str
    #: Devices that it is for, by product or architecture, and devices that refuse it.
    products: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    not_products: tuple[str, ...] = ()


class Condition(CatalogueEntry, frozen=True):
    """Variables of an image that say what its container runtime asks of the node."""

    variables: tuple[str, ...]
    #: Variable that switches the check off.
    unless: str
    #: Variable with a version of the runtime, which counts where there is no condition.
    legacy: str
    not_variables: tuple[str, ...] = ()


class Brand(CatalogueEntry, frozen=True):
    """What a driver says that devices are sold as; one of `brands`, by the generation."""

    names: tuple[str, ...]
    brands: tuple[str, ...]


class Redistribution(CatalogueEntry, frozen=True):
    """What a vendor's license lets everybody pass on; it says no more of files that it covers."""

    license: str
    #: Globs of the distributions that come with this license, and of the paths that its own
    #: installer fills.
    distributions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    #: Globs of file names.
    names: tuple[str, ...] = ()


class FrameworkLibraries(CatalogueEntry, frozen=True):
    """The versions of libraries that builds of a distribution were made with."""

    distribution: str
    #: First two numbers of its versions.
    releases: tuple[str, ...]
    #: Globs of local versions.
    builds: tuple[str, ...]
    #: SONAME -> version.
    libraries: dict[str, str]


class LibraryDistribution(CatalogueEntry, frozen=True):
    """Distributions that are a library: who requires such a distribution requires its version."""

    #: Globs.
    distributions: tuple[str, ...]
    #: Globs of SONAMEs.
    libraries: tuple[str, ...]


class VersionPair(CatalogueEntry, frozen=True):
    """Distributions that work beside the same version of another one, and with no other."""

    #: Globs.
    distributions: tuple[str, ...]
    beside: str
    #: What happens otherwise.
    effect: str


class VariantFeature(CatalogueEntry, frozen=True):
    """What properties of wheel variants promise (PEP 825), and so which machines they are for.

    Features of one namespace stand in the order of their importance.
    """

    namespace: str
    features: tuple[str, ...]
    #: `toolkit-floor`: the driver runs this toolkit, or a newer one; `toolkit-ceiling`: only older
    #: ones; `toolkit`: this one; `device-code`: code for this GPU; `instruction-level`: a level of
    #: the processor; `library`: the one that does a work which several can do.
    means: Literal[
        "toolkit-floor", "toolkit-ceiling", "toolkit", "device-code", "instruction-level", "library"
    ]
    #: Regular expression of values -> what they stand for, as `sm_90` or `x86-64-v3`, with `\\1`
    #: for what its group matched. Without any, a value stands for itself.
    values: dict[str, str] = {}
    #: Value -> globs of the library's file names, the most usual one first.
    libraries: dict[str, tuple[str, ...]] = {}


#: What a label of a node says: a field of its node class; `resource`: only that pods can ask for
#: it; `known`: nothing that a class has; `unknown`: for all keys of a vendor that no other entry
#: knows.
NodeField = Literal[
    "product",
    "arch",
    "driver",
    "memory",
    "count",
    "partition",
    "cpu",
    "resource",
    "known",
    "unknown",
]


class NodeLabel(CatalogueEntry, frozen=True):
    """Labels that discovery services give the nodes of a cluster, or resources that nodes offer.

    Of several entries for one field the first that says something counts.
    """

    #: Globs of keys, of which the most exact one counts.
    names: tuple[str, ...]
    field: NodeField
    #: Regular expression for the whole of `KEY=VALUE`, whose group `value` is what it says.
    #: Default: the value.
    pattern: str | None = None
    #: What the field gets, made of the parts that several labels hold: `sm_{1}{2}`, `{1}MiB`. A
    #: constant says what it means that the label is there.
    form: str | None = None
    #: Which of these parts it holds.
    part: int = 0


class CacheEntry(CatalogueEntry, frozen=True):
    """Folders that a program keeps for itself: what lies in them is not installed."""

    #: `uv's cache`
    title: str
    kind: LeftoverKind
    #: Paths, from the root on with a leading `/`, else anywhere; `*` stands for a part of one name.
    folders: tuple[str, ...]
    #: What to do, so that it is not left in an image.
    advice: str
    #: Environment variables that name such a folder.
    variables: tuple[str, ...] = ()


class BuildPart(CatalogueEntry, frozen=True):
    """What every image of the backend needs; `note` explains it in the Dockerfile."""

    #: That installs the wheels, or of the image itself.
    stage: Literal["build", "final"] = "final"
    variables: dict[str, str] = {}
    #: Of the image's user, where the base image has them.
    groups: tuple[str, ...] = ()
    #: Debian packages.
    packages: tuple[str, ...] = ()
    #: Where a container runtime puts the libraries of the host: in front of LD_LIBRARY_PATH.
    library_folders: tuple[str, ...] = ()


class StartingBase(CatalogueEntry, frozen=True):
    """The base image that a first specification names, and what goes with it."""

    #: With the placeholders of a specification: `{runtime.full}`, `{python}`.
    image: str
    #: As in a specification; none for a backend without version lines.
    runtimes: dict[str, dict[str, str]] = {}
    #: The Python versions that there are such images for; none where any will do.
    pythons: tuple[str, ...] = ()
    #: uv's name of the torch build, for projects with torch.
    torch: str = "cpu"
    #: Debian packages that this image lacks.
    packages: tuple[str, ...] = ()


class WheelOrigin(CatalogueEntry, frozen=True):
    """Where distributions for the backend come from; `note` says more, and is a sentence."""

    names: tuple[str, ...]
    #: `vendor`: an index or an SDK of the vendor's.
    origin: Literal["pypi", "vendor"]


class RunOptions(CatalogueEntry, frozen=True):
    """How a container gets at the devices: options of `docker run`; `note` says when."""

    options: tuple[str, ...]


class Unbuildable(CatalogueEntry, frozen=True):
    """Why there is no Linux image for the backend: the end of a sentence."""

    reason: str


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
    local_versions: tuple[LocalVersion, ...] = ()
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
    version_pairs: tuple[VersionPair, ...] = ()
    redistribution: tuple[Redistribution, ...] = ()
    variant_features: tuple[VariantFeature, ...] = ()
    node_labels: tuple[NodeLabel, ...] = ()
    node_resources: tuple[NodeLabel, ...] = ()


def entries(file: DataFile) -> Iterator[tuple[str, int, CatalogueEntry]]:
    """All entries of a file, with the name of their table and their number in it."""
    for field in msgspec.structs.fields(file):
        value = getattr(file, field.name)
        if isinstance(value, tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, CatalogueEntry):
                    yield field.encode_name, number, entry
