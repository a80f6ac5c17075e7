"""BM708: a wheel variant promises what its bytes do not have, or is for other machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from buildmatrix.catalogue.architectures import READY, grade
from buildmatrix.catalogue.names import demangle
from buildmatrix.catalogue.variants import RUNNING, Fit, Promise, fit, promises
from buildmatrix.elf.isa import level_number
from buildmatrix.inventory.model import Binary, Distribution
from buildmatrix.parsing import version_or_none
from buildmatrix.phrases import listing
from buildmatrix.rules.belonging import title
from buildmatrix.rules.coverage import code_holders
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.model import Finding, FitReason, Fix
from buildmatrix.rules.node_reasons import GridState
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass

#: Evidence of libraries that a file has in it or links.
_LINKED = ("bundled", "needed", "static")


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per variant: for another backend, else what is false, else where it does not fit.

    What the catalogue does not know, and bytes that were not read, are no proof.
    """
    for item in image.inventory.distributions:
        if item.variant is None:
            continue
        promised = promises(item.variant.properties, image.catalogue)
        problem = _foreign(image, promised) or _false(image, item, promised)
        fault = "; ".join(problem) or "; ".join(_unfit(image, item))
        if fault:
            yield _finding(image, item, fault)


def _foreign(image: ImageSubject, promised: Sequence[Promise]) -> list[str]:
    backends: dict[str, Promise] = {}
    for item in promised:
        if item.owned is not None and item.is_foreign(image.backend, image.catalogue):
            backends.setdefault(item.owned.backend, item)
    return [
        f"it is for {title(backend, image.catalogue)} ({item})"
        for backend, item in backends.items()
    ]


def _false(image: ImageSubject, item: Distribution, promised: Sequence[Promise]) -> list[str]:
    """Return the promises that the bytes of the distribution contradict, one clause each."""
    owner = item.owner
    of_meaning: dict[str, list[Promise]] = {}
    for promise in promised:
        of_meaning.setdefault(promise.means.partition("-")[0], []).append(promise)
    # An instruction or a library that is not known may be what the bytes need.
    unknown = {promise.namespace for promise in of_meaning.get("", ())}
    closed = [p for p in of_meaning.get("instruction", ()) if p.namespace not in unknown]
    libraries = [p for p in of_meaning.get("library", ()) if p.namespace not in unknown]
    return [
        *_false_code(image, owner, of_meaning.get("device", ())),
        *_false_toolkit(image, owner, of_meaning.get("toolkit", ())),
        *_false_level(image, owner, closed),
        *_false_library(image, owner, libraries),
    ]


def _false_code(image: ImageSubject, owner: str, promised: Sequence[Promise]) -> Iterator[str]:
    """Every promised GPU needs code; a distribution without any may make it when it runs."""
    holder = next((item for item in code_holders(image) if item.owner == owner), None)
    if holder is None or holder.is_partial or any(file.is_open for file in holder.files):
        return
    lacking = [item for item in promised if not _runs(item.meaning or "", holder.architectures)]
    if lacking:
        yield (
            f"it promises {listing(map(str, lacking))}, and its device code is for "
            f"{listing(holder.architectures, 8)}"
        )


def _runs(code: str, present: Sequence[str]) -> bool:
    """Return True if some code runs wherever `code` does, and without compiling where that does."""
    device = code.replace("compute_", "sm_")
    wanted = RUNNING if device != code else READY
    return code in present or grade(device, present) in wanted


def _false_toolkit(image: ImageSubject, owner: str, promised: Sequence[Promise]) -> Iterator[str]:
    """Libraries of a toolkit line that the drivers which are promised do not run."""
    for item in promised:
        version = version_or_none(item.meaning or "")
        if item.owned is None or version is None:
            continue
        for evidence in image.evidence:
            if (
                evidence.distribution == owner
                and evidence.kind in _LINKED
                and evidence.backend == item.owned.backend
                and evidence.weight == "strong"
                and evidence.toolkit is not None
                and (line := version_or_none(evidence.toolkit)) is not None
            ):
                bad = {
                    "toolkit-floor": line.major > version.major,
                    "toolkit-ceiling": line >= version,
                    "toolkit": line.major != version.major,
                }[item.means]
                if bad:
                    yield (
                        f"it promises {item}, and {evidence.path} has {evidence.detail}, which is "
                        f"of {title(evidence.backend, image.catalogue)} {evidence.toolkit}"
                    )
                    break


def _false_level(image: ImageSubject, owner: str, promised: Sequence[Promise]) -> Iterator[str]:
    levels = [level_number(item.meaning or "") or 0 for item in promised]
    for binary in _binaries(image, owner):
        needed = level_number(binary.elf.isa_needed or "")
        if levels and needed is not None and needed > max(levels):
            highest = promised[levels.index(max(levels))]
            yield f"it promises {highest}, and {binary.path} needs {binary.elf.isa_needed}"
            return


def _false_library(image: ImageSubject, owner: str, promised: Sequence[Promise]) -> Iterator[str]:
    """Another library for the same work, and none of the promised ones."""
    names = {
        demangle(name)
        for binary in _binaries(image, owner)
        for name in (binary.path.rpartition("/")[2], *binary.elf.needed)
    }
    for item in promised if owner not in image.incomplete else ():
        if item.owned is None:
            continue
        present = {
            value
            for value, globs in item.owned.entry.libraries.items()
            if any(fnmatchcase(name, glob) for name in names for glob in globs)
        }
        if present and present.isdisjoint(p.value for p in promised):
            yield f"it promises {item}, and has or links {listing(sorted(present))}"
            return


def _binaries(image: ImageSubject, owner: str) -> Iterator[Binary]:
    return (binary for binary in image.inventory.loadable if binary.owner == owner)


def find_states(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Which variants a node class does not support, for the grid.

    What is false is no reason: other rules judge the bytes. What is strange is BM710's.
    """
    for item in image.inventory.distributions:
        for lacking in unsupported(image, item, node):
            text = f"{_about(item)}: {lacking.reason}"
            if lacking.state == "no":
                yield "refused", FitReason("BM708", text, distribution=item.name)
            elif not lacking.is_strange:
                yield "undecided", FitReason("", text)


def unsupported(image: ImageSubject, item: Distribution, node: NodeClass | None) -> Iterator[Fit]:
    """The reason for each feature of a variant without a supported value, if it is known."""
    features: dict[tuple[str, str], list[Fit]] = {}
    for promise in promises(item.variant.properties if item.variant else (), image.catalogue):
        result = fit(promise, image.target, node, image.catalogue)
        features.setdefault((promise.namespace, promise.feature), []).append(result)
    for fits in features.values():
        first = {result.state: result for result in reversed(fits)}
        if "yes" not in first:
            yield first.get("unknown") or first["no"]


def _unfit(image: ImageSubject, item: Distribution) -> Iterator[str]:
    """Yield features that the target's machines do not support; one value of each is enough."""
    nodes: Sequence[NodeClass | None] = image.target.node_classes or (None,)
    for node in nodes:
        refused = (each for each in unsupported(image, item, node) if each.state == "no")
        lacking = next(refused, None)
        if lacking is not None:
            where = f"node class {node.name}" if node is not None else "the target"
            yield f"{where} does not support it: {lacking.reason}"


def _about(item: Distribution) -> str:
    label = item.variant.label if item.variant is not None else ""
    return f"{item.name} {item.version} is the variant {label}"


def _finding(image: ImageSubject, item: Distribution, fault: str) -> Finding:
    owner = item.owner
    return finding(
        "BM708",
        image,
        f"{_about(item)}: {fault}",
        owner=owner,
        path=item.path,
        chain=chain_to_file(image, owner, item.path),
        fix=Fix(
            "upgrade",
            f"take another variant of {item.name}, or a build whose metadata fit its bytes",
        ),
    )
