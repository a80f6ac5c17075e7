"""Wheel variants for `inspect`: their build targets, and the one that a target takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.variants import VariantChoice, choose_variant
from buildmatrix.inventory.model import Distribution
from buildmatrix.inventory.variants import VariantMetadata, format_properties, make_metadata
from buildmatrix.reports.inspect import ReleaseVariant, VariantUse
from buildmatrix.spec.model import NodeClass, Target

#: Files with only metadata of variants.
_OF_INDEX = "-variants.json"
_OF_WHEEL = "variant.json"


def is_variant_metadata(name: str) -> bool:
    """True if a file of this name lists variants."""
    return name == _OF_WHEEL or name.endswith(_OF_INDEX)


def find_variants(
    distributions: Iterable[Distribution], target: Target | None, catalogue: Catalogue
) -> tuple[ReleaseVariant, ...]:
    """Return the variants of the distributions in a wheel or a tree."""
    return tuple(
        shown
        for item in distributions
        if item.variant is not None
        for shown in list_release_variants(
            make_metadata(item.variant), target, catalogue, f"{item.name} {item.version}"
        )
    )


def list_release_variants(
    metadata: VariantMetadata,
    target: Target | None,
    catalogue: Catalogue,
    distribution: str = "",
) -> tuple[ReleaseVariant, ...]:
    """Return all variants by label, with their use on each node class of `target`."""
    choices: list[tuple[str, VariantChoice]] = []
    if target is not None:
        nodes: Sequence[NodeClass | None] = target.node_classes or (None,)
        choices = [
            (
                target.id if node is None else node.name,
                choose_variant(metadata, node, target, catalogue),
            )
            for node in nodes
        ]
    return tuple(
        ReleaseVariant(
            label,
            distribution,
            format_properties(properties),
            tuple(_make_use(label, *choice) for choice in choices),
        )
        for label, properties in sorted(metadata.variants.items())
    )


def _make_use(label: str, machines: str, choice: VariantChoice) -> VariantUse:
    if label == choice.label:
        return VariantUse(machines, "taken")
    reason = choice.reasons[label]
    if label in choice.undecided:
        return VariantUse(machines, "undecided", reason)
    return VariantUse(machines, "not-taken", reason)
