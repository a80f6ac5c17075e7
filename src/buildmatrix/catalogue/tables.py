"""The tables of one data file, and its entries about machines and versions."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from typing import Literal

import msgspec

from buildmatrix.catalogue import entries
from buildmatrix.catalogue.entries import CatalogueEntry


class Host(CatalogueEntry, frozen=True):
    """Signs of such devices on a machine: files that can be read without any tool.

    Nodes are globs of absolute paths; `*` and `?` may be in each component.
    """

    #: One node per device.
    nodes: tuple[str, ...]
    #: PCI vendor, as sysfs writes it (`0x1002`), of nodes that other vendors have, too: their
    #: folder in `sysfs` has a file `device/vendor`.
    pci_vendor: str | None = None
    sysfs: str | None = None
    #: Further nodes that a program needs.
    needs: tuple[str, ...] = ()
    #: Kernel modules of the driver; `/sys/module/NAME/version` is the version of one.
    modules: tuple[str, ...] = ()
    #: Further files that contain it, and a regular expression whose first group it is in them.
    version_files: tuple[str, ...] = ()
    version: str = r"(\d+(?:\.\d+)+)"
    #: CDI device kinds and runtimes of the Docker daemon that give containers the device.
    cdi: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    #: Globs of files in `/proc` and `/sys`, one for each device, and a regular expression whose
    #: first group is the name of the device in them.
    product_files: tuple[str, ...] = ()
    product: str = r"(\S.*)"
    #: Globs of names of devices in sysfs that are this vendor's without being on the PCI bus: parts
    #: that a device is divided into.
    platform_devices: tuple[str, ...] = ()


#: Source of a check: content of files, existence of files of such names, or the kernel's log.
Reading = Literal["content", "name", "log"]
#: One value, its growth per second, or the share (percent) of its growth in that of a whole.
Measuring = Literal["once", "second", "share"]


class HostCheck(CatalogueEntry, frozen=True, kw_only=True):
    """A check of a machine: source, expected values, and the fix.

    Each file that a glob of `files` matches is one measure. A check of a vendor's backend counts
    where its devices are.
    """

    id: str
    #: Name of the measure, for a person.
    title: str
    #: Globs; `{device}` is the folder in sysfs of each device of the backend (of a backend without
    #: a vendor: of every accelerator) on the PCI bus.
    files: tuple[str, ...] = ()
    reads: Reading = "content"
    #: Regular expression whose first group is the value; a file that it does not match says
    #: nothing. In the log a group `device` says which one a line is about.
    pattern: str = r"\A\s*(\S(?:[^\n]*\S)?)\s*\Z"
    over: Measuring = "once"
    #: Of a share: regular expression whose first group has the numbers that make the whole.
    whole: str | None = None
    scale: float = 1
    unit: str = ""
    #: What is right: numbers, globs of values, or how a value relates to those of other files, of
    #: which the least counts. `{folder}` and `{stem}`, the name up to its last `_`, are those of
    #: the file that was read. Nothing of these: whatever is there; of a log, nothing.
    least: float | None = None
    most: float | None = None
    good: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    relation: Literal["equal", "at-least", "at-most", "below"] = "equal"
    #: Meaning of values.
    meanings: dict[str, str] = {}
    #: Results if the expectation does not hold, and if none of the files exists.
    state: Literal["low", "partly"] = "partly"
    absent: Literal["none", "ok", "low", "partly"] = "none"
    #: Globs of which each must match something, else the check does not count.
    when: tuple[str, ...] = ()
    #: Whether it counts only where there is an accelerator.
    needs_devices: bool = False
    remedy: str


class FrameworkDevices(CatalogueEntry, frozen=True):
    """A framework's names for devices of the backend, as in the probes of `preflight`.

    That is the framework's own word; if several backends share it, the build target follows: `GPU
    cuda`, `GPU rocm`; for torch `hip` in place of its `cuda`.
    """

    #: Module that is imported: `torch`.
    framework: str
    #: Globs of its names for such devices.
    devices: tuple[str, ...]
    #: Modules that bring these devices to it, where it does not look for them itself.
    imports: tuple[str, ...] = ()


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


#: Meaning of a node's label: a field of its node class; `resource`: only that pods can request it;
#: `known`: irrelevant to classes; `unknown`: for all keys of a vendor that no other entry matches.
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
    #: Part of the field that it has.
    part: int = 0


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
    """Runtimes and drivers of one release: the first `numbers` of their versions are equal."""

    components: int


class KernelFloor(CatalogueEntry, frozen=True):
    """The oldest Linux kernel that has a device, by globs of architectures."""

    architectures: tuple[str, ...]
    kernel: str


class CodeVersion(CatalogueEntry, frozen=True):
    """Compiler of device code of a kind (`ptx`) on the node."""

    kind: str
    #: Version of the language -> first toolkit whose driver compiles it.
    toolkits: dict[str, str]


class RuntimeVersion(CatalogueEntry, frozen=True):
    """Files and distributions with the version of the runtime; globs."""

    distributions: tuple[str, ...] = ()
    system_packages: tuple[str, ...] = ()
    #: Names of files, with the version behind `.so.`.
    libraries: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    #: Regular expressions for paths of libraries, with the version in their only group.
    paths: tuple[str, ...] = ()


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
    """Product line that a driver reports for devices; one of `brands`, by the generation."""

    names: tuple[str, ...]
    brands: tuple[str, ...]


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


class LibraryPackage(CatalogueEntry, frozen=True):
    """Packages of operating systems that install libraries."""

    #: SONAMEs.
    names: tuple[str, ...]
    debian: str
    rpm: str
    alpine: str


class StatedVersion(CatalogueEntry, frozen=True):
    """Version that a file of a distribution states as that of its build."""

    #: Globs.
    distributions: tuple[str, ...]
    #: Below the folder that the distribution is installed in.
    file: str
    #: Name, or key of a dictionary.
    name: str
    #: Globs of SONAMEs.
    libraries: tuple[str, ...] = ()
    #: True if it is the version of the backend's runtime.
    is_runtime: bool = False


class VersionPair(CatalogueEntry, frozen=True):
    """Distributions that work beside one version of another one, and with no other."""

    #: Globs.
    distributions: tuple[str, ...]
    beside: str
    #: Consequence otherwise.
    effect: str
    #: `same`: both have the same version; `required`: it is one that the metadata ask for.
    version: Literal["same", "required"] = "same"


class ImageLabel(CatalogueEntry, frozen=True):
    """Labels with which images of a vendor say which version of its runtime they are made for."""

    names: tuple[str, ...]


class VariantFeature(CatalogueEntry, frozen=True):
    """Meaning of properties of wheel variants (PEP 825), and the machines that they are for.

    Features of one namespace are in order of importance.
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


#: Version of this format, in the key `schema` of a file.
SCHEMA = 1


class DataFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """One data file: the knowledge about one backend."""

    schema: int
    backend: str
    #: Absent if it belongs to no vendor.
    vendor: str | None = None
    title: str
    aliases: tuple[str, ...] = ()
    checked: datetime.date
    sources: dict[str, str]
    libraries: tuple[entries.LibraryEntry, ...] = ()
    distributions: tuple[entries.DistributionEntry, ...] = ()
    conda: tuple[entries.CondaPackageEntry, ...] = ()
    channels: tuple[entries.ChannelEntry, ...] = ()
    source_traces: tuple[entries.SourceTrace, ...] = ()
    local_versions: tuple[entries.LocalVersion, ...] = ()
    modules: tuple[entries.ModuleEntry, ...] = ()
    system_packages: tuple[entries.SystemPackageEntry, ...] = ()
    roots: tuple[entries.Root, ...] = ()
    environment: tuple[entries.EnvironmentEntry, ...] = ()
    images: tuple[entries.ImageEntry, ...] = ()
    sections: tuple[entries.SectionEntry, ...] = ()
    device_code: tuple[entries.DeviceCodeEntry, ...] = ()
    artifacts: tuple[entries.ArtifactEntry, ...] = ()
    frameworks: tuple[entries.Framework, ...] = ()
    static: tuple[entries.Static, ...] = ()
    tools: tuple[entries.ToolEntry, ...] = ()
    indexes: tuple[entries.Route, ...] = ()
    exceptions: tuple[entries.ExceptionRule, ...] = ()
    hosts: tuple[Host, ...] = ()
    checks: tuple[HostCheck, ...] = ()
    framework_devices: tuple[FrameworkDevices, ...] = ()
    caches: tuple[entries.CacheEntry, ...] = ()
    build: tuple[entries.BuildPart, ...] = ()
    bases: tuple[entries.StartingBase, ...] = ()
    wheels: tuple[entries.WheelOrigin, ...] = ()
    runs: tuple[entries.RunOptions, ...] = ()
    unbuildable: tuple[entries.Unbuildable, ...] = ()
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
    redistribution: tuple[entries.Redistribution, ...] = ()
    variant_features: tuple[VariantFeature, ...] = ()
    node_labels: tuple[NodeLabel, ...] = ()
    node_resources: tuple[NodeLabel, ...] = ()


@functools.cache
def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the keys of a file; evaluating their types takes longer than reading a file."""
    return msgspec.structs.fields(DataFile)


def iter_entries(file: DataFile) -> Iterator[tuple[str, int, CatalogueEntry]]:
    """Yield all entries of a file, with table and number."""
    for field in _fields():
        value = getattr(file, field.name)
        if isinstance(value, tuple):
            for number, entry in enumerate(value):
                if isinstance(entry, CatalogueEntry):
                    yield field.encode_name, number, entry
