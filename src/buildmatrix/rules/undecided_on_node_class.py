"""BM710: what an image does on a node class is not known, and the specification says all it can.

The run is undecided as long as a finding of this rule is a warning
(`rules.severities.leaves_open`).
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue import drivers
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.node_drivers import node_driver
from buildmatrix.rules.node_reasons import Reason, findings_of
from buildmatrix.rules.runtime_versions import Runtime, runtimes
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.variant_against_bytes import unsupported
from buildmatrix.spec.model import NodeClass
from buildmatrix.spec.version_range import version_range


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per runtime, and one per wheel variant."""
    return findings_of("BM710", image, reasons)


def reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield what the image or the tables leave undecided about a node class."""
    present = runtimes(image)
    has_driver = version_range(node.driver).lowest is not None
    if present and has_driver and drivers.has_tables(image.backend, image.catalogue):
        fit = node_driver(image, node)
        if all(runtime.version is None for runtime in present):
            about = f"the version of {present[0].name} is not known"
            yield _runtime(node, present[0], about)
        elif fit is not None and fit.verdict == "unknown" and fit.runtime is not None:
            about = f"no table has the toolkit of {fit.runtime.name} ({fit.runtime.version})"
            yield _runtime(node, fit.runtime, about)
    for item in image.inventory.distributions:
        strange = (result for result in unsupported(image, item, node) if result.is_strange)
        if item.variant is not None and (lacking := next(strange, None)) is not None:
            yield Reason(
                rule="BM710",
                node=node.name,
                state="undecided",
                severity="warning",
                about=f"{item.name} {item.version} is the variant {item.variant.label}",
                there=f"whether {node.name} supports it is not known: {lacking.reason}",
                owner=item.owner,
                path=item.path,
                fix=_fix(item.name),
            )


def _runtime(node: NodeClass, runtime: Runtime, about: str) -> Reason:
    owner = runtime.evidence.distribution
    return Reason(
        rule="BM710",
        node=node.name,
        state="undecided",
        severity="warning",
        about=about,
        there=f"nothing says whether driver {node.driver} of {node.name} runs it",
        owner=owner,
        path=runtime.evidence.path,
        evidence=(runtime.evidence,),
        fix=_fix(owner.partition("==")[0] if owner else None),
    )


def _fix(distribution: str | None) -> Fix:
    advice = "run it on a machine of that class, and accept it with a [[waive]]"
    return Fix("waive", advice, accept("BM710", distribution=distribution))
