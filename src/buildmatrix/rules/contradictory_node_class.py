"""BM707: a node class of the target contradicts itself.

A product that is another backend's is refused before, as a mistake of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from buildmatrix.catalogue.format.machines import Product
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.names import matches, matches_any, product_words
from buildmatrix.catalogue.products import bare_architecture, product, same_memory
from buildmatrix.phrases import listing, size
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import Subject
from buildmatrix.spec import kinds
from buildmatrix.spec.model import NodeClass


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One thing that cannot be so beside another."""

    #: The key that is wrong, or one of two that are.
    key: str
    #: The end of a sentence about the class.
    text: str
    severity: Severity = "error"


def check(subject: Subject) -> Iterator[Finding]:
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
    yield from _partition(node, products, catalogue)
    yield from _memory(node, products)
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


def _partition(
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


def _memory(node: NodeClass, products: list[Product]) -> Iterator[Contradiction]:
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
