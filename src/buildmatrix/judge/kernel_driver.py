"""BM704: an image's user space does not fit the kernel driver or kernel of a node class.

For backends with the runtime in the image and a kernel module as driver. Vendors' tables list the
combinations that were tested.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.base.text import listing
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.architectures import architectures
from buildmatrix.catalogue.entries import Basis, CatalogueEntry
from buildmatrix.catalogue.names import matches_any
from buildmatrix.judge.library_versions import Runtime, runtimes
from buildmatrix.judge.model import Finding, Fix, NodeState, Severity
from buildmatrix.judge.node_classes import Reason, findings_of
from buildmatrix.judge.subject import ImageSubject
from buildmatrix.matrix.kinds import VersionRange, numbers, version_range
from buildmatrix.matrix.model import NodeClass

#: Bases of facts that may refuse a node class; remembered or inferred facts refuse nothing.
_SURE: tuple[Basis, ...] = ("verified", "documented")


def check_kernel_driver(image: ImageSubject) -> Iterator[Finding]:
    """One finding per runtime, and one per kernel that lacks a device."""
    return findings_of("BM704", image, kernel_driver_reasons)


def kernel_driver_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the mismatches on a node class."""
    yield from _kernel(image, node)
    driver = version_range(node.driver)
    runtime = next((item for item in runtimes(image) if item.version is not None), None)
    if runtime is None or driver.lowest is None:
        return
    catalogue, backend = image.catalogue, image.backend
    floor = drivers.floor(runtime.version or "", backend, catalogue)
    # BM701 covers toolkits with their own drivers.
    is_floor = not drivers.select_entries(catalogue.toolkit_drivers, backend)
    if floor is not None and is_floor and not drivers.meets(driver.lowest, floor.driver):
        asks = f", which asks for driver {floor.driver} or later"
        yield _misfit(image, node, runtime, floor, asks=asks)
    yield from _pair(image, node, driver, runtime)
    version = numbers(runtime.version or "") or ()
    for row in drivers.select_entries(catalogue.driver_releases, backend):
        count = min(row.components, len(version), len(driver.lowest))
        if version[:count] != driver.lowest[:count]:
            asks = ", whose driver is of the same release"
            yield _misfit(image, node, runtime, row, asks=asks)


def _kernel(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    kernel = version_range(node.kernel)
    if kernel.lowest is None:
        return
    for row in drivers.select_entries(image.catalogue.kernel_floors, image.backend):
        for arch in architectures(node, image.catalogue):
            if matches_any(row.architectures, arch) and not drivers.meets(
                kernel.lowest, row.kernel
            ):
                state, severity = _rate_entry(row)
                yield Reason(
                    state=state,
                    severity=severity,
                    about=f"{arch} needs Linux {row.kernel}",
                    there=f"{node.name} has kernel {node.kernel}",
                    fix=Fix("pin", f"upgrade the kernel of {node.name} to {row.kernel} or later"),
                )


def _pair(
    image: ImageSubject, node: NodeClass, driver: VersionRange, runtime: Runtime
) -> Iterator[Reason]:
    catalogue, backend = image.catalogue, image.backend
    if not drivers.select_entries(catalogue.driver_pairs, backend):
        return
    row = drivers.pair_of(driver, backend, catalogue)
    there = f"{node.name} has driver {driver.text}"
    if row is None:
        there += ", which is in no table"
    else:
        if runtime.version in row.runtimes:
            return
        if drivers.is_beyond(driver, backend, catalogue):
            there += f", which is newer than every table and judged as {row.driver}"
        if runtime.version not in row.partly and len(numbers(runtime.version or "") or ()) > 1:
            tested = f", which was tested with {listing(row.runtimes)}"
            yield _misfit(image, node, runtime, row, tested=tested)
            return
        there += ", and the two were tested together in part alone"
    yield Reason(
        state="undecided",
        severity="note",
        about=runtime.about(backend, catalogue),
        there=there,
    ).shown_by(runtime.evidence)


def _rate_entry(row: CatalogueEntry) -> tuple[NodeState, Severity]:
    return ("refused", "error") if row.basis in _SURE else ("undecided", "warning")


def _misfit(
    image: ImageSubject,
    node: NodeClass,
    runtime: Runtime,
    row: CatalogueEntry,
    *,
    asks: str = "",
    tested: str = "",
) -> Reason:
    state, severity = _rate_entry(row)
    return Reason(
        state=state,
        severity=severity,
        about=runtime.about(image.backend, image.catalogue) + asks,
        there=f"{node.name} has driver {node.driver}{tested}",
        fix=Fix(
            "pin",
            "take a build for a release that was tested with that driver, or change the driver",
        ),
    ).shown_by(runtime.evidence)
