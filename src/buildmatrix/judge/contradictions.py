"""Rules about node classes and wheel variants with false claims: BM707 and BM708."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from buildmatrix.base.parsing import version_or_none
from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.drivers import READY, bare_architecture, grade, product, same_memory
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import demangle, matches, matches_any, product_words
from buildmatrix.catalogue.tables import Product
from buildmatrix.catalogue.variants import RUNNING, Fit, Promise, fit, promises
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.model import Binary, Distribution
from buildmatrix.judge.coverage import code_holders
from buildmatrix.judge.findings import finding
from buildmatrix.judge.model import Finding, FitReason, Fix, Severity
from buildmatrix.judge.node_classes import GridState
from buildmatrix.judge.subject import ImageSubject, Subject
from buildmatrix.matrix import kinds
from buildmatrix.matrix.model import NodeClass

# BM707: a node class of the target contradicts itself.
#
# A product of another backend is refused earlier, as a mistake in the specification.


class Contradiction(Struct, frozen=True):
    """One thing that cannot be so beside another."""

    #: The key that is wrong, or one of two that are.
    key: str
    #: The end of a sentence about the class.
    text: str
    severity: Severity = "error"


def check_contradictory_node_class(subject: Subject) -> Iterator[Finding]:
    """One finding per contradiction of the classes that the target runs on."""
    for node in subject.target.node_classes:
        for item in contradictions(node, subject.catalogue):
            yield finding(
                "BM707",
                subject,
                f"the node class {node.name} {item.text}",
                severity=item.severity,
                path=node.position.file,
                chain=(str(node.position), f"{node.name}: {item.key}"),
                fix=Fix(
                    "pin",
                    f"write what the machines of {node.name} have; "
                    "`buildmatrix node-classes import` reads it from a cluster",
                ),
                identity=f"{node.name} {item.text}",
            )


def contradictions(node: NodeClass, catalogue: Catalogue) -> Iterator[Contradiction]:
    """Yield the contradictions in a node class, as far as the catalogue knows its parts."""
    owned_products = (product(name, node.backend, catalogue) for name in node.products)
    products = [owned.entry for owned in owned_products if owned is not None]
    yield from _foreign_architectures(node, catalogue)
    yield from _foreign_resources(node, catalogue)
    yield from _other_architectures(node, products)
    yield from _wrong_partition(node, products, catalogue)
    yield from _wrong_memory(node, products)
    if node.fall_back is not None and node.fall_back == node.known_good:
        text = "has one image as `known-good` and `fall-back`: where it fails, nothing is left"
        yield Contradiction("fall-back", text, "warning")


def _foreign_architectures(node: NodeClass, catalogue: Catalogue) -> Iterator[Contradiction]:
    entry = catalogue.backends.get(node.backend)
    if entry is None or not entry.products:
        return  # It runs on devices of other backends, as `vulkan` does, or nothing is known of it.
    for arch in node.archs:
        owners = {
            owned.backend
            for owned in catalogue.device_code
            if owned.entry.weight == "strong" and matches_any(owned.entry.architectures, arch)
        } | {
            file.backend
            for file in catalogue.files.values()
            for device in file.products
            if bare_architecture(arch) in device.architectures
        }
        if owners and node.backend not in owners:
            text = f"is for {node.backend}, and its {arch} is a device of {listing(sorted(owners))}"
            yield Contradiction("archs", text)


def _foreign_resources(node: NodeClass, catalogue: Catalogue) -> Iterator[Contradiction]:
    if not any(owned.backend == node.backend for owned in catalogue.node_resources):
        return
    for name in node.resources:
        owners = {
            owned.backend
            for owned in catalogue.node_resources
            if matches_any(owned.entry.names, name)
        }
        if owners and node.backend not in owners:
            text = f"is for {node.backend}, and asks for {name} of {listing(sorted(owners))}"
            yield Contradiction("resources", text)


def _other_architectures(node: NodeClass, products: list[Product]) -> Iterator[Contradiction]:
    of_products = {arch for device in products for arch in device.architectures}
    other = [arch for arch in node.archs if bare_architecture(arch) not in of_products]
    if of_products and other:
        described = listing(sorted(of_products))
        text = f"has {listing(other)} in `archs`, and its products are {described}"
        yield Contradiction("archs", text, "warning")


def _wrong_partition(
    node: NodeClass, products: list[Product], catalogue: Catalogue
) -> Iterator[Contradiction]:
    """Products decide; without them all devices of the architectures."""
    bare = {bare_architecture(arch) for arch in node.archs}
    devices = products or [
        device
        for file in catalogue.files.values()
        if file.backend == node.backend
        for device in file.products
        if bare.intersection(device.architectures)
    ]
    if not node.partition or not devices:
        return
    words = product_words(node.partition)
    globs = sorted({glob for device in devices for glob in device.partitions})
    if not any(matches(product_words(glob), words) for glob in globs):
        what = listing(node.products or node.archs)
        can = f"can be divided into {listing(globs)} only" if globs else "cannot be divided"
        yield Contradiction("partition", f"has the partition {node.partition}, and {what} {can}")


def _wrong_memory(node: NodeClass, products: list[Product]) -> Iterator[Contradiction]:
    """The memory of a device that is divided is that of a part."""
    if not node.memory or node.partition or not products:
        return
    amounts = [kinds.size(device.memory) for device in products if device.memory is not None]
    if len(amounts) == len(products) and not any(
        same_memory(amount, node.memory) for amount in amounts
    ):
        has = listing(size(amount) for amount in sorted(set(amounts)))
        text = f"has devices with {size(node.memory)}, and {listing(node.products)} has {has}"
        yield Contradiction("memory", text)


# BM708: a wheel variant promises what its bytes lack, or is for other machines


#: Evidence of libraries that a file has in it or links.
_LINKED = ("bundled", "needed", "static")


def check_variant_against_bytes(image: ImageSubject) -> Iterator[Finding]:
    """One finding per variant: for another backend, else what is false, else where it does not fit.

    What the catalogue does not know, and bytes that were not read, are no proof.
    """
    for item in image.inventory.distributions:
        if item.variant is None:
            continue
        promised = promises(item.variant.properties, image.catalogue)
        backends: dict[str, Promise] = {}
        for promise in promised:
            if promise.owned is not None and promise.is_foreign(image.backend, image.catalogue):
                backends.setdefault(promise.owned.backend, promise)
        faults = (
            [f"it is for {image.catalogue.title(name)} ({p})" for name, p in backends.items()]
            or _false_promises(image, item, promised)
            or list(_unfit(image, item))
        )
        if faults:
            yield finding(
                "BM708",
                image,
                f"{_about_variant(item)}: {'; '.join(faults)}",
                owner=item.owner,
                path=item.path,
                fix=Fix(
                    "upgrade",
                    f"take another variant of {item.name}, or a build whose metadata fit its bytes",
                ),
            )


def _false_promises(
    image: ImageSubject, item: Distribution, promised: Sequence[Promise]
) -> list[str]:
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
    lacking = [
        item for item in promised if not _runs_code(item.meaning or "", holder.architectures)
    ]
    if lacking:
        yield (
            f"it promises {listing(map(str, lacking))}, and its device code is for "
            f"{listing(holder.architectures, 8)}"
        )


def _runs_code(code: str, present: Sequence[str]) -> bool:
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
                        f"of {image.catalogue.title(evidence.backend)} {evidence.toolkit}"
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


def find_variant_states(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Yield the grid states of wheel variants that a node class does not support.

    False promises are excluded: other rules judge the bytes. Unknown variants are BM710's.
    """
    for item in image.inventory.distributions:
        for lacking in unsupported(image, item, node):
            text = f"{_about_variant(item)}: {lacking.reason}"
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


def _about_variant(item: Distribution) -> str:
    label = item.variant.label if item.variant is not None else ""
    return f"{item.name} {item.version} is the variant {label}"
