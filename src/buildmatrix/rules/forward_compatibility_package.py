"""BM703: an image contains the user-space half of a newer driver, which does not help."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.model import Finding, Fix, NodeState, Severity
from buildmatrix.rules.node_drivers import CompatPackage, NodeDriver, node_driver
from buildmatrix.rules.node_reasons import Reason, findings_of
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass


def check(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per package and problem."""
    return findings_of("BM703", image, reasons)


def reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the problems of the package on a node class."""
    fit = node_driver(image, node)
    if fit is None or fit.compat is None or fit.driver.lowest is None:
        return
    package = fit.compat
    about = f"the forward-compatibility package {package.path} has driver {package.driver}"
    said = _said(fit, package)
    if said is None:
        return
    state, severity, text, fix = said
    yield Reason(
        rule="BM703",
        node=node.name,
        state=state,
        severity=severity,
        about=about,
        there=f"{fit.name}, {text}",
        path=package.path,
        fix=Fix("base", fix),
    )


def _said(fit: NodeDriver, package: CompatPackage) -> tuple[NodeState, Severity, str, str] | None:
    is_needed = fit.verdict in ("line", "refused")
    if package.by and not package.is_newer(fit.driver):
        branch = package.numbers[0]
        if fit.driver.lowest is not None and fit.driver.lowest[0] > branch:
            return (
                "refused",
                "error",
                f"which is newer, and {package.by} puts the package before it: "
                "`system has unsupported display driver / cuda driver combination` (803)",
                f"take {package.path.rpartition('/')[0]} out of {package.by}",
            )
        return None
    if fit.is_used and fit.is_for_devices is False:
        if fit.verdict == "refused":
            return None  # BM701 says so.
        return (
            "refused",
            "error",
            "and devices that refuse the package: `forward compatibility was attempted on non "
            "supported HW` (804)",
            "take the package out of the image, or the target from the node class",
        )
    if fit.is_used and is_needed and fit.is_for_devices is None and fit.verdict != "refused":
        return (
            "undecided",
            "warning",
            "and it is not known whether its devices take the package, or refuse it with error 804",
            "name the `products` of the node class",
        )
    if is_needed and not fit.is_used and fit.is_for_devices is not False:
        return (
            "minor-version" if fit.verdict == "line" else "refused",
            "warning",
            "for which the package is made, but nothing brings it into reach",
            f"add {package.path.rpartition('/')[0]} to LD_LIBRARY_PATH",
        )
    return None
