"""Support of an image's runtimes by the drivers of node classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.drivers import DriverVerdict
from buildmatrix.catalogue.format.versions import ForwardCompatibility
from buildmatrix.catalogue.names import matches_any
from buildmatrix.catalogue.products import architectures, is_product
from buildmatrix.inventory.paths import LinkedPaths
from buildmatrix.rules.runtime_versions import Runtime, runtimes
from buildmatrix.rules.subject import ImageSubject, once
from buildmatrix.spec.model import NodeClass
from buildmatrix.spec.version_range import Numbers, VersionRange, compare, numbers, version_range


@dataclass(frozen=True, slots=True)
class CompatPackage:
    """The user-space half of a newer driver in an image."""

    path: str
    #: `570.86.10`
    driver: str
    #: Variable that puts its folder on the search path on any host: `LD_LIBRARY_PATH`; or empty.
    by: str
    #: True if the container runtime puts it on the search path when the host's driver is older.
    is_injected: bool

    @property
    def numbers(self) -> Numbers:
        """The same version, to compare with."""
        return numbers(self.driver) or (0,)

    def is_newer(self, driver: VersionRange) -> bool:
        """Return True if it is of a newer branch than a driver."""
        return driver.lowest is not None and compare(self.numbers[:1], driver.lowest[:1]) > 0

    def is_used(self, driver: VersionRange) -> bool:
        """Return True if programs get it on a host with that driver."""
        return bool(self.by) or (self.is_injected and self.is_newer(driver))


@dataclass(frozen=True, slots=True)
class NodeDriver:
    """Support of the most demanding runtime by the driver of one node class."""

    node: NodeClass
    driver: VersionRange
    #: None where no runtime of a known version is in the image.
    runtime: Runtime | None
    verdict: DriverVerdict
    compat: CompatPackage | None
    #: True if the package runs the runtime.
    is_enough: bool
    #: True if the package is made for the devices of the class; None if unknown.
    is_for_devices: bool | None

    @property
    def is_cured(self) -> bool:
        """Return True if the package is used, is made for the devices, and runs the runtime."""
        return self.is_used and self.is_enough and self.is_for_devices is True

    @property
    def is_used(self) -> bool:
        """Return True if programs get the package's driver there."""
        return self.compat is not None and self.compat.is_used(self.driver)

    @property
    def name(self) -> str:
        """The class and its driver, as messages have them."""
        return f"{self.node.name} has driver {self.driver.text}"


def node_driver(image: ImageSubject, node: NodeClass) -> NodeDriver | None:
    """Return the support on a node class; None if no table has the backend's toolkits."""
    if not drivers.of_backend(image.catalogue.toolkit_drivers, image.backend):
        return None
    driver = version_range(node.driver)
    worst, asks = _worst(image, driver)
    compat, row = compat_package(image)
    supported = is_for_devices(row, image, node) if row is not None else None
    is_enough = (
        compat is not None
        and asks is not None
        and _runs(image, asks.version or "", version_range(compat.driver)) in ("full", "line")
    )
    return NodeDriver(node, driver, asks, worst, compat, is_enough, supported)


@once
def _worst(image: ImageSubject, driver: VersionRange) -> tuple[DriverVerdict, Runtime | None]:
    """Return a driver's verdict about the most demanding runtime, and that runtime."""
    worst: DriverVerdict = "full"
    asks: Runtime | None = None
    rank: tuple[DriverVerdict, ...] = ("full", "line", "unknown", "refused")
    for runtime in _that_ask(image):
        if runtime.version is None:
            continue
        verdict = _runs(image, runtime.version, driver)
        if asks is None or rank.index(verdict) > rank.index(worst):
            worst, asks = verdict, runtime
    return worst, asks


@once
def _runs(image: ImageSubject, toolkit: str, driver: VersionRange) -> DriverVerdict:
    return drivers.runs(toolkit, driver, image.backend, image.catalogue)


def _that_ask(image: ImageSubject) -> tuple[Runtime, ...]:
    """Return the relevant runtimes; one with only a known line counts if no other is of that line.

    Libraries such as cuDNN link a runtime in, and are made for every toolkit of their line.
    """
    present = [(numbers(runtime.version or ""), runtime) for runtime in runtimes(image)]
    exact = {version[0] for version, _ in present if version is not None and len(version) > 1}
    return tuple(
        runtime
        for version, runtime in present
        if version is not None and (len(version) > 1 or version[0] not in exact)
    )


def toolkit_there(fit: NodeDriver, image: ImageSubject) -> str | None:
    """The newest toolkit that programs find everything of on a node class."""
    present = fit.driver.lowest
    if fit.is_cured and fit.compat is not None:
        present = fit.compat.numbers
    if present is None:
        return None
    return drivers.toolkit_of(present, image.backend, image.catalogue)


@once
def compat_package(
    image: ImageSubject,
) -> tuple[CompatPackage | None, ForwardCompatibility | None]:
    """The newest one in the image, those in reach first, and the entry that knows it."""
    links = {link.path: link.target for link in image.inventory.links if not link.hard}
    paths = LinkedPaths((), links)
    present: list[tuple[CompatPackage, ForwardCompatibility]] = []
    for row in drivers.of_backend(image.catalogue.forward_compatibility, image.backend):
        injected = paths.folder(row.injected)
        for binary in image.inventory.loadable:
            folder, _, base = binary.path.rpartition("/")
            if not matches_any(row.libraries, base) or not matches_any(row.folders, folder):
                continue
            package = CompatPackage(
                binary.path,
                base.rpartition(".so.")[2],
                _by(image, folder, paths),
                folder in (row.injected, injected),
            )
            if numbers(package.driver):
                present.append((package, row))
    return max(
        present,
        key=lambda pair: (bool(pair[0].by), pair[0].is_injected, pair[0].numbers),
        default=(None, None),
    )


def _by(image: ImageSubject, folder: str, paths: LinkedPaths) -> str:
    def holds(folders: Iterable[str]) -> bool:
        return any(paths.folder(item) == folder for item in folders if item.strip("/"))

    if holds(image.inventory.environment.get("LD_LIBRARY_PATH", "").split(":")):
        return "LD_LIBRARY_PATH"
    cached = image.inventory.loader_cache or ()
    if holds(image.inventory.library_folders) or holds(
        library.path.rpartition("/")[0] for library in cached
    ):
        return "ld.so.conf"
    return ""


def is_for_devices(row: ForwardCompatibility, image: ImageSubject, node: NodeClass) -> bool | None:
    """Return True if an entry is for the devices of a node class; None if that is unknown."""
    if any(is_product(row.not_products, name) for name in node.products):
        return False
    if node.products and all(is_product(row.products, name) for name in node.products):
        return True
    archs = architectures(node, image.catalogue)
    if archs and all(matches_any(row.architectures, arch) for arch in archs):
        return True
    return None
