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
    yield from _floor(image, node, driver, runtime)
    yield from _pair(image, node, driver, runtime)
    yield from _release(image, node, driver, runtime)


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
                    rule="BM704",
                    node=node.name,
                    state=state,
                    severity=severity,
                    about=f"{arch} needs Linux {row.kernel}",
                    there=f"{node.name} has kernel {node.kernel}",
                    fix=Fix("pin", f"upgrade the kernel of {node.name} to {row.kernel} or later"),
                )


def _floor(
    image: ImageSubject, node: NodeClass, driver: VersionRange, runtime: Runtime
) -> Iterator[Reason]:
    catalogue, backend = image.catalogue, image.backend
    row = drivers.floor(runtime.version or "", backend, catalogue)
    # BM701 covers toolkits with their own drivers.
    if row is None or drivers.select_entries(catalogue.toolkit_drivers, backend):
        return
    if driver.lowest is not None and not drivers.meets(driver.lowest, row.driver):
        yield _reason(image, node, runtime, row, f"which asks for driver {row.driver} or later", "")


def _pair(
    image: ImageSubject, node: NodeClass, driver: VersionRange, runtime: Runtime
) -> Iterator[Reason]:
    catalogue, backend = image.catalogue, image.backend
    if not drivers.select_entries(catalogue.driver_pairs, backend):
        return
    row = drivers.pair_of(driver, backend, catalogue)
    about = runtime.about(backend, catalogue)
    there = f"{node.name} has driver {driver.text}"
    if row is None:
        yield _open(node, runtime, about, f"{there}, which is in no table")
        return
    if drivers.is_beyond(driver, backend, catalogue):
        there += f", which is newer than every table and judged as {row.driver}"
    if runtime.version in row.runtimes:
        return
    if runtime.version in row.partly or len(numbers(runtime.version or "") or ()) < 2:
        yield _open(
            node, runtime, about, f"{there}, and the two were tested together in part alone"
        )
        return
    yield _reason(
        image,
        node,
        runtime,
        row,
        "",
        f", which was tested with {listing(row.runtimes)}",
    )


def _release(
    image: ImageSubject, node: NodeClass, driver: VersionRange, runtime: Runtime
) -> Iterator[Reason]:
    version = numbers(runtime.version or "")
    for row in drivers.select_entries(image.catalogue.driver_releases, image.backend):
        if version is None or driver.lowest is None:
            continue
        count = min(row.components, len(version), len(driver.lowest))
        if version[:count] != driver.lowest[:count]:
            yield _reason(image, node, runtime, row, "whose driver is of the same release", "")


def _rate_entry(row: CatalogueEntry) -> tuple[NodeState, Severity]:
    return ("refused", "error") if row.basis in _SURE else ("undecided", "warning")


def _open(node: NodeClass, runtime: Runtime, about: str, there: str) -> Reason:
    return Reason(
        rule="BM704",
        node=node.name,
        state="undecided",
        severity="note",
        about=about,
        there=there,
        owner=runtime.evidence.distribution,
        path=runtime.evidence.path,
        evidence=(runtime.evidence,),
    )


def _reason(
    image: ImageSubject,
    node: NodeClass,
    runtime: Runtime,
    row: CatalogueEntry,
    what: str,
    then: str,
) -> Reason:
    state, severity = _rate_entry(row)
    return Reason(
        rule="BM704",
        node=node.name,
        state=state,
        severity=severity,
        about=runtime.about(image.backend, image.catalogue) + (f", {what}" if what else ""),
        there=f"{node.name} has driver {node.driver}{then}",
        owner=runtime.evidence.distribution,
        path=runtime.evidence.path,
        evidence=(runtime.evidence,),
        fix=Fix(
            "pin",
            "take a build for a release that was tested with that driver, or change the driver",
        ),
    )
