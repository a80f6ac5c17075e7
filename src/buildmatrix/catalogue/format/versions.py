"""Which versions of drivers, kernels, runtimes and libraries work together."""

from __future__ import annotations

from typing import Literal

from buildmatrix.catalogue.format.entry import CatalogueEntry


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
    """What a driver says that devices are sold as; one of `brands`, by the generation."""

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
    """What a file of a distribution says of a version that it was built with."""

    #: Globs.
    distributions: tuple[str, ...]
    #: Below the folder that the distribution is installed in.
    file: str
    #: Name, or key of a dictionary.
    name: str
    #: Globs of SONAMEs.
    libraries: tuple[str, ...] = ()
    #: Whether it is the version of the backend's runtime.
    is_runtime: bool = False


class VersionPair(CatalogueEntry, frozen=True):
    """Distributions that work beside one version of another one, and with no other."""

    #: Globs.
    distributions: tuple[str, ...]
    beside: str
    #: What happens otherwise.
    effect: str
    #: `same`: both have the same version; `required`: it is one that the metadata ask for.
    version: Literal["same", "required"] = "same"


class ImageLabel(CatalogueEntry, frozen=True):
    """Labels with which images of a vendor say which version of its runtime they are made for."""

    names: tuple[str, ...]


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
