"""BM701: the runtime in an image requires a newer driver than a node class has."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue import drivers
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.node_drivers import NodeDriver, node_driver
from buildmatrix.rules.node_reasons import Reason, findings_of
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per runtime that a driver refuses."""
    return findings_of("BM701", image, reasons)


def reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Why the driver of a node class does not run the image."""
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
    yield Reason(
        rule="BM701",
        node=node.name,
        state="undecided" if is_open else "refused",
        severity="warning" if is_open else "error",
        about=fit.runtime.about(image.backend, image.catalogue)
        + (f", which no driver before {least.driver} runs" if least is not None else ""),
        there=f"{fit.name}{_compat(fit)}",
        owner=fit.runtime.evidence.distribution,
        path=fit.runtime.evidence.path,
        evidence=(fit.runtime.evidence,),
        fix=Fix(
            "pin",
            f"take a build for the toolkit of that driver "
            f"({drivers.toolkit_of(fit.driver.lowest or (0,), image.backend, image.catalogue)}), "
            + (f"upgrade the driver to {least.driver} or later, " if least is not None else "")
            + "or take the target from the node class (`runs`)",
        ),
    )


def _compat(fit: NodeDriver) -> str:
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
