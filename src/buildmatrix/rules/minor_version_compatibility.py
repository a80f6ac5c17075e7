"""BM702: an image runs on a driver of its toolkit's line that is older than the toolkit.

Within a line an older driver runs newer toolkits, without what only newer drivers have. It does not
compile device code that a newer toolkit wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.architectures import support
from buildmatrix.catalogue.products import architectures
from buildmatrix.phrases import listing
from buildmatrix.rules.coverage import CodeFile, CodeHolder, coverage
from buildmatrix.rules.missing_architecture import better_build
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.node_drivers import NodeDriver, node_driver, toolkit_there
from buildmatrix.rules.node_reasons import Reason, findings_of
from buildmatrix.rules.runtime_versions import device_codes
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass
from buildmatrix.spec.version_range import compare, numbers


def check(image: ImageSubject) -> Iterator[Finding]:
    """A note on the runtime, and an error for each holder of code that is not compiled there."""
    return findings_of("BM702", image, reasons)


def reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the limits of minor-version compatibility on a node class."""
    fit = node_driver(image, node)
    if fit is None:
        return
    if fit.verdict == "line" and fit.runtime is not None and not fit.is_used:
        toolkit = fit.runtime.version or ""
        is_minor = len(numbers(toolkit) or ()) > 1
        least = drivers.minimum(toolkit, image.backend, image.catalogue) if is_minor else None
        since = f", which has everything from driver {least.driver} on" if least else ""
        yield Reason(
            rule="BM702",
            node=node.name,
            state="minor-version",
            severity="note",
            about=fit.runtime.about(image.backend, image.catalogue) + since,
            there=f"{fit.name}, and runs it by minor-version compatibility",
            owner=fit.runtime.evidence.distribution,
            path=fit.runtime.evidence.path,
            evidence=(fit.runtime.evidence,),
            fix=Fix(
                "pin",
                "upgrade the driver, or take a build for an older toolkit, where something that "
                "only a newer driver has is used",
            ),
        )
    if fit.verdict != "refused" or fit.is_cured:
        yield from _not_compiled(image, node, fit)


def _not_compiled(image: ImageSubject, node: NodeClass, fit: NodeDriver) -> Iterator[Reason]:
    present = toolkit_there(fit, image)
    if present is None:
        return
    for arch in architectures(node, image.catalogue):
        for item in coverage(image, arch).at("jit"):
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
            if too_new:
                yield _reason(image, node, fit, item.holder, arch, too_new, present)


def _compiled_by(image: ImageSubject, file: CodeFile, arch: str) -> str | None:
    """The first toolkit whose driver compiles what a file has for a GPU; None where not known."""
    toolkits = [
        drivers.compiles(code.kind, code.language, image.backend, image.catalogue)
        for code in device_codes(image).get(file.path, ())
        if code.language is not None and code.arch and support(arch, [code.arch]) == "jit"
    ]
    named = [toolkit for toolkit in toolkits if toolkit is not None]
    return min(named, key=lambda toolkit: numbers(toolkit) or (0,), default=None)


def _reason(
    image: ImageSubject,
    node: NodeClass,
    fit: NodeDriver,
    holder: CodeHolder,
    arch: str,
    too_new: list[tuple[CodeFile, str]],
    present: str,
) -> Reason:
    first, toolkit = max(too_new, key=lambda pair: numbers(pair[1]) or (0,))
    least = drivers.minimum(toolkit, image.backend, image.catalogue)
    needs = f" (driver {least.driver})" if least is not None else ""
    return Reason(
        rule="BM702",
        node=node.name,
        state="refused",
        severity="error",
        about=f"{holder.name} has nothing for {arch} but PTX of toolkit {toolkit}{needs} in "
        f"{listing((file.path for file, _ in too_new), 3)}",
        there=f"{fit.name}, which compiles PTX up to toolkit {present} and refuses this with "
        "`unsupported PTX version`",
        owner=holder.owner,
        path=first.path,
        evidence=(first.evidence,),
        fix=better_build(holder, [arch]),
    )
