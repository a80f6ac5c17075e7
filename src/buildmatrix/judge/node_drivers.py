"""Support of an image's runtimes by the drivers of node classes: BM701 to BM703."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from buildmatrix.base.text import listing
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.drivers import DriverVerdict, architectures, support
from buildmatrix.catalogue.model import is_product, matches_any
from buildmatrix.catalogue.tables import ForwardCompatibility
from buildmatrix.facts.inventory.listing import LinkedPaths
from buildmatrix.judge.architectures import better_build
from buildmatrix.judge.coverage import CodeFile, coverage
from buildmatrix.judge.library_versions import Runtime, device_codes, runtimes
from buildmatrix.judge.model import Fix, NodeState, Severity
from buildmatrix.judge.node_classes import Reason
from buildmatrix.judge.subject import ImageSubject, once
from buildmatrix.matrix.kinds import Numbers, VersionRange, compare, numbers, version_range
from buildmatrix.matrix.model import NodeClass


class CompatPackage(Struct, frozen=True):
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


class NodeDriver(Struct, frozen=True):
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
    if not drivers.select_entries(image.catalogue.toolkit_drivers, image.backend):
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
    for runtime in _select_demanding(image):
        if runtime.version is None:
            continue
        verdict = _runs(image, runtime.version, driver)
        if asks is None or rank.index(verdict) > rank.index(worst):
            worst, asks = verdict, runtime
    return worst, asks


@once
def _runs(image: ImageSubject, toolkit: str, driver: VersionRange) -> DriverVerdict:
    return drivers.runs(toolkit, driver, image.backend, image.catalogue)


def _select_demanding(image: ImageSubject) -> tuple[Runtime, ...]:
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


@once
def compat_package(image: ImageSubject) -> tuple[CompatPackage | None, ForwardCompatibility | None]:
    """The newest one in the image, those in reach first, and the entry that knows it."""
    links = {link.path: link.target for link in image.inventory.links if not link.hard}
    paths = LinkedPaths((), links)
    present: list[tuple[CompatPackage, ForwardCompatibility]] = []
    for row in drivers.select_entries(image.catalogue.forward_compatibility, image.backend):
        injected = paths.folder(row.injected)
        for binary in image.inventory.loadable:
            folder, _, base = binary.path.rpartition("/")
            if not matches_any(row.libraries, base) or not matches_any(row.folders, folder):
                continue
            package = CompatPackage(
                binary.path,
                base.rpartition(".so.")[2],
                _name_search_path(image, folder, paths),
                folder in (row.injected, injected),
            )
            if numbers(package.driver):
                present.append((package, row))
    return max(
        present,
        key=lambda pair: (bool(pair[0].by), pair[0].is_injected, pair[0].numbers),
        default=(None, None),
    )


def _name_search_path(image: ImageSubject, folder: str, paths: LinkedPaths) -> str:
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


# BM701: the runtime in an image requires a newer driver than a node class has


def old_driver_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the runtimes of the image that the driver of a node class refuses."""
    fit = node_driver(image, node)
    if fit is None or fit.runtime is None or fit.runtime.version is None:
        return
    if fit.verdict != "refused" or fit.is_cured:
        return
    toolkit = fit.runtime.version
    least = drivers.floor(toolkit, image.backend, image.catalogue) or drivers.minimum(
        toolkit, image.backend, image.catalogue
    )
    is_open = fit.is_used and fit.is_enough and fit.is_for_devices is None
    oldest = drivers.toolkit_of(fit.driver.lowest or (0,), image.backend, image.catalogue)
    yield Reason(
        state="undecided" if is_open else "refused",
        severity="warning" if is_open else "error",
        about=fit.runtime.about(image.backend, image.catalogue)
        + (f", which no driver before {least.driver} runs" if least is not None else ""),
        there=f"{fit.name}{_compat_words(fit)}",
        fix=Fix(
            "pin",
            f"take a build for the toolkit of that driver ({oldest}), "
            + (f"upgrade the driver to {least.driver} or later, " if least is not None else "")
            + "or take the target from the node class (`runs`)",
        ),
    ).shown_by(fit.runtime.evidence)


def _compat_words(fit: NodeDriver) -> str:
    """Describe the effect of a forward-compatibility package in the image."""
    if fit.compat is None:
        return ""
    if not fit.is_enough:
        return f", and {fit.compat.path} does not run it either"
    if not fit.is_used:
        return f", and {fit.compat.path} is not in reach (BM703)"
    if fit.is_for_devices is False:
        return f", and its devices refuse the forward-compatibility package {fit.compat.path}"
    return (
        f"; it runs only if its devices take the forward-compatibility package {fit.compat.path}, "
        "which `products` of the node class would say"
    )


# BM702: the driver of a node class is older than an image's toolkit of the same line.
#
# Within a line an older driver runs newer toolkits, without features of newer drivers. It does not
# compile device code written by a newer toolkit.


def minor_version_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the limits of minor-version compatibility on a node class.

    A note on the runtime, and an error for each holder of code that is not compiled there.
    """
    fit = node_driver(image, node)
    if fit is None:
        return
    if fit.verdict == "line" and fit.runtime is not None and not fit.is_used:
        toolkit = fit.runtime.version or ""
        is_minor = len(numbers(toolkit) or ()) > 1
        least = drivers.minimum(toolkit, image.backend, image.catalogue) if is_minor else None
        since = f", which has everything from driver {least.driver} on" if least else ""
        yield Reason(
            state="minor-version",
            severity="note",
            about=fit.runtime.about(image.backend, image.catalogue) + since,
            there=f"{fit.name}, and runs it by minor-version compatibility",
            fix=Fix(
                "pin",
                "upgrade the driver, or take a build for an older toolkit, where something that "
                "only a newer driver has is used",
            ),
        ).shown_by(fit.runtime.evidence)
    if fit.verdict != "refused" or fit.is_cured:
        yield from _not_compiled(image, node, fit)


def _not_compiled(image: ImageSubject, node: NodeClass, fit: NodeDriver) -> Iterator[Reason]:
    driver = fit.compat.numbers if fit.is_cured and fit.compat is not None else fit.driver.lowest
    if driver is None:
        return
    # The newest toolkit that programs find everything of there.
    present = drivers.toolkit_of(driver, image.backend, image.catalogue)
    if present is None:
        return
    for arch in architectures(node, image.catalogue):
        for item in coverage(image, arch):
            if item.served.grade != "jit":
                continue
            late = [
                (file, toolkit)
                for file, served in zip(item.holder.files, item.files, strict=True)
                if served.grade == "jit" and (toolkit := _compiled_by(image, file, arch))
            ]
            too_new = [
                (file, toolkit)
                for file, toolkit in late
                if compare(numbers(toolkit) or (0,), numbers(present) or (0,)) > 0
            ]
            if not too_new:
                continue
            first, toolkit = max(too_new, key=lambda pair: numbers(pair[1]) or (0,))
            least = drivers.minimum(toolkit, image.backend, image.catalogue)
            needs = f" (driver {least.driver})" if least is not None else ""
            yield Reason(
                state="refused",
                severity="error",
                about=f"{item.holder.name} has nothing for {arch} but PTX of toolkit "
                f"{toolkit}{needs} in {listing((file.path for file, _ in too_new), 3)}",
                there=f"{fit.name}, which compiles PTX up to toolkit {present} and refuses this "
                "with `unsupported PTX version`",
                fix=better_build(item.holder, [arch]),
            ).shown_by(first.evidence)


def _compiled_by(image: ImageSubject, file: CodeFile, arch: str) -> str | None:
    """Return the first toolkit whose driver compiles a file's code for a GPU; None if unknown."""
    toolkits = [
        drivers.compiles(code.kind, code.language, image.backend, image.catalogue)
        for code in device_codes(image).get(file.path, ())
        if code.language is not None and code.arch and support(arch, [code.arch]) == "jit"
    ]
    named = [toolkit for toolkit in toolkits if toolkit is not None]
    return min(named, key=lambda toolkit: numbers(toolkit) or (0,), default=None)


# BM703: an image contains the user-space half of a newer driver, which does not help


def compat_package_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the problem of the package on a node class."""
    fit = node_driver(image, node)
    if fit is None or fit.compat is None or fit.driver.lowest is None:
        return
    package = fit.compat
    folder = package.path.rpartition("/")[0]
    is_needed = fit.verdict in ("line", "refused")
    state: NodeState = "refused"
    severity: Severity = "error"
    if package.by and not package.is_newer(fit.driver):
        if fit.driver.lowest[0] <= package.numbers[0]:
            return
        there = (
            f"which is newer, and {package.by} puts the package before it: "
            "`system has unsupported display driver / cuda driver combination` (803)"
        )
        advice = f"take {folder} out of {package.by}"
    elif fit.is_used and fit.is_for_devices is False:
        if fit.verdict == "refused":
            return  # BM701 says so.
        there = (
            "and devices that refuse the package: `forward compatibility was attempted on non "
            "supported HW` (804)"
        )
        advice = "take the package out of the image, or the target from the node class"
    elif fit.is_used and fit.is_for_devices is None and fit.verdict == "line":
        state, severity = "undecided", "warning"
        there = (
            "and it is not known whether its devices take the package, or refuse it with error 804"
        )
        advice = "name the `products` of the node class"
    elif is_needed and not fit.is_used and fit.is_for_devices is not False:
        state, severity = "minor-version" if fit.verdict == "line" else "refused", "warning"
        there = "for which the package is made, but nothing brings it into reach"
        advice = f"add {folder} to LD_LIBRARY_PATH"
    else:
        return
    yield Reason(
        state=state,
        severity=severity,
        about=f"the forward-compatibility package {package.path} has driver {package.driver}",
        there=f"{fit.name}, {there}",
        path=package.path,
        fix=Fix("base", advice),
    )
