"""BM710, and the grid of targets and node classes.

BM710: an image's behavior on a node class is unknown, and nothing more in the specification could
decide it. As a warning it leaves the run undecided (`judge.acceptance.leaves_open`).

For backends with the runtime in the image and a kernel module as driver. Vendors' tables list the
combinations that were tested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.drivers import architectures, support, support_of
from buildmatrix.catalogue.entries import Basis, CatalogueEntry
from buildmatrix.catalogue.model import matches_any
from buildmatrix.judge.contradictions import find_variant_states, unsupported
from buildmatrix.judge.coverage import code_holders, coverage
from buildmatrix.judge.findings import split_owner
from buildmatrix.judge.fixes import accept
from buildmatrix.judge.library_versions import Runtime, runtimes
from buildmatrix.judge.model import (
    NODE_STATES,
    DeviceFit,
    Finding,
    FitReason,
    Fix,
    NodeFit,
    NodeState,
    Severity,
)
from buildmatrix.judge.node_classes import GridState, Reason, find_instruction_states, unmet_reasons
from buildmatrix.judge.node_drivers import (
    compat_package_reasons,
    minor_version_reasons,
    node_driver,
    old_driver_reasons,
)
from buildmatrix.judge.subject import ImageSubject
from buildmatrix.judge.unfit_artifacts import find_artifact_states
from buildmatrix.matrix.kinds import VersionRange, numbers, version_range
from buildmatrix.matrix.model import NodeClass

#: Bases of facts that may refuse a node class; remembered or inferred facts refuse nothing.
_SURE: tuple[Basis, ...] = ("verified", "documented")


def kernel_driver_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the mismatches on a node class: of the runtime, and of the kernel with a device."""
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
        state="undecided", severity="note", about=runtime.about(backend, catalogue), there=there
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


def undecided_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield what the image or the tables leave undecided about a node class."""
    present = runtimes(image)
    has_driver = version_range(node.driver).lowest is not None
    if present and has_driver and drivers.has_tables(image.backend, image.catalogue):
        fit = node_driver(image, node)
        runtime, about = None, ""
        if all(item.version is None for item in present):
            runtime = present[0]
            about = f"the version of {runtime.name} is not known"
        elif fit is not None and fit.verdict == "unknown" and fit.runtime is not None:
            runtime = fit.runtime
            about = f"no table has the toolkit of {runtime.name} ({runtime.version})"
        if runtime is not None:
            yield Reason(
                state="undecided",
                severity="warning",
                about=about,
                there=f"nothing says whether driver {node.driver} of {node.name} runs it",
                fix=_undecided_fix(split_owner(runtime.evidence.distribution)[0]),
            ).shown_by(runtime.evidence)
    for item in image.inventory.distributions:
        strange = (result for result in unsupported(image, item, node) if result.is_strange)
        if item.variant is not None and (lacking := next(strange, None)) is not None:
            yield Reason(
                state="undecided",
                severity="warning",
                about=f"{item.name} {item.version} is the variant {item.variant.label}",
                there=f"whether {node.name} supports it is not known: {lacking.reason}",
                owner=item.owner,
                path=item.path,
                fix=_undecided_fix(item.name),
            )


def _undecided_fix(distribution: str | None) -> Fix:
    advice = "run it on a machine of that class, and accept it with a [[waive]]"
    return Fix("waive", advice, accept("BM710", distribution=distribution))


# The grid of targets and node classes.
#
# Built from the reasons of BM701 to BM705 and BM710, from device code, artifacts, wheel variants
# and processor-specific files, and from gaps in the specification.


#: Rules about node classes: why an image is not simply `ok` on one of them.
REASONS: Mapping[str, Callable[[ImageSubject, NodeClass], Iterator[Reason]]] = {
    "BM701": old_driver_reasons,
    "BM702": minor_version_reasons,
    "BM703": compat_package_reasons,
    "BM704": kernel_driver_reasons,
    "BM705": unmet_reasons,
    "BM710": undecided_reasons,
}
#: State functions of rules that do not concern node classes alone.
_PARTLY: tuple[Callable[[ImageSubject, NodeClass], Iterator[GridState]], ...] = (
    find_artifact_states,
    find_variant_states,
    find_instruction_states,
)


def fits(image: ImageSubject, findings: Collection[Finding]) -> tuple[NodeFit, ...]:
    """One cell per node class of the target, in the order of the specification.

    `findings` are those of the image: how bad it is that somebody's device code is missing is
    theirs to say.
    """
    return tuple(_fit(image, node, findings) for node in image.target.node_classes)


def mark_accepted(cells: Iterable[NodeFit], findings: Collection[Finding]) -> tuple[NodeFit, ...]:
    """Mark reasons whose findings are all accepted. A waiver changes no state."""
    waived: dict[tuple[str, str | None], bool] = {}
    for finding in findings:
        for name in (finding.distribution, None):
            key = (finding.rule, name)
            waived[key] = waived.get(key, True) and finding.waived is not None

    def mark(reason: FitReason) -> FitReason:
        return replace(reason, waived=waived.get((reason.rule, reason.distribution), False))

    return tuple(replace(cell, reasons=tuple(map(mark, cell.reasons))) for cell in cells)


def _fit(image: ImageSubject, node: NodeClass, findings: Collection[Finding]) -> NodeFit:
    said: list[GridState] = [
        (reason.state, FitReason(code, reason.text, distribution=split_owner(reason.owner)[0]))
        for code, reasons in REASONS.items()
        for reason in reasons(image, node)
    ]
    said += (item for rule in _PARTLY for item in rule(image, node))
    said += _driver(image, node)
    said += _devices(image, node, findings)
    said.sort(key=lambda item: -NODE_STATES.index(item[0]))
    state = said[0][0] if said else "ok"
    reasons = tuple(dict.fromkeys(reason for _, reason in said))
    return NodeFit(node.name, state, reasons, _device_fits(image, node))


def _device_fits(image: ImageSubject, node: NodeClass) -> tuple[DeviceFit, ...]:
    """Return the device code's support for each GPU of a node class; empty without code."""
    holders = code_holders(image)
    codes = sorted({code for holder in holders for code in holder.architectures})
    return tuple(
        DeviceFit(
            arch,
            {code: support(arch, [code]) for code in codes},
            {item.holder.name: support_of(item.served.grade) for item in coverage(image, arch)},
        )
        for arch in (architectures(node, image.catalogue) if holders else ())
    )


def _driver(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Yield what is undecided about the driver, and remedies for an old one."""
    catalogue, backend = image.catalogue, image.backend
    if not drivers.has_tables(backend, catalogue) or not runtimes(image):
        return
    driver = version_range(node.driver)
    if driver.lowest is None:
        has = f"driver {node.driver}, which has no lowest version" if node.driver else "no driver"
        yield "undecided", FitReason("", f"{node.name} names {has}")
        return
    if drivers.is_beyond(driver, backend, catalogue):
        newest = drivers.newest_driver(backend, catalogue)
        text = f"driver {node.driver} is newer than every table, and judged as {newest}"
        yield "ok", FitReason("", text)
    fit = node_driver(image, node)
    if fit is None or fit.compat is None:
        return
    if fit.is_cured and fit.verdict in ("line", "refused"):
        text = f"{fit.name}; the forward-compatibility package {fit.compat.path} stands in for it"
        yield "compat-package", FitReason("", text)


def _devices(
    image: ImageSubject, node: NodeClass, findings: Collection[Finding]
) -> Iterator[GridState]:
    """Yield the states of the device code on the devices."""
    archs = architectures(node, image.catalogue)
    if not archs:
        if code_holders(image):
            yield "undecided", FitReason("", f"{node.name} names no `products` and no `archs`")
        return
    errors = {
        finding.distribution
        for finding in findings
        if finding.rule == "BM402" and finding.severity == "error" and finding.distribution
    }
    for arch in archs:
        holders = coverage(image, arch)
        lacking = [item for item in holders if item.served.is_missing]
        for item in holders:
            served, holder = item.served, item.holder.name
            name = split_owner(item.holder.owner)[0]
            if served.is_missing:
                amount = "next to no" if served.is_of_most else "no"
                text = f"{holder} has {amount} device code for {arch}"
                is_refused = name in errors or len(lacking) == len(holders)
                state: NodeState = "refused" if is_refused else "ok"
                yield state, FitReason("BM402", text, distribution=name)
            elif served.grade == "jit":
                text = f"the code of {holder} is compiled for {arch} at the first start"
                yield "jit", FitReason("BM403", text, distribution=name)
            elif served.grade in ("none", "unknown"):
                text = f"whether {holder} has device code for {arch} is not known"
                yield "undecided", FitReason("BM402", text, distribution=name)
