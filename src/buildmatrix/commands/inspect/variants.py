"""Wheel variants for `inspect`: what they were built for, and which one a target takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.variant_choice import VariantChoice, choose_variant
from buildmatrix.inventory.model import Distribution
from buildmatrix.inventory.variants import VariantMetadata, format_properties, make_metadata
from buildmatrix.reports.inspect.model import ReleaseVariant, VariantUse
from buildmatrix.spec.model import NodeClass, Target

#: Files that have metadata of variants and nothing else.
_OF_INDEX = "-variants.json"
_OF_WHEEL = "variant.json"


def is_variant_metadata(name: str) -> bool:
    """Whether a file of this name says which variants there are."""
    return name == _OF_WHEEL or name.endswith(_OF_INDEX)


def variants_of(
    distributions: Iterable[Distribution], target: Target | None, catalogue: Catalogue
) -> tuple[ReleaseVariant, ...]:
    """The variants that the distributions of a wheel or a tree are."""
    return tuple(
        shown
        for item in distributions
        if item.variant is not None
        for shown in release_variants(
            make_metadata(item.variant), target, catalogue, f"{item.name} {item.version}"
        )
    )


def release_variants(
    metadata: VariantMetadata,
    target: Target | None,
    catalogue: Catalogue,
    distribution: str = "",
) -> tuple[ReleaseVariant, ...]:
    """All variants by label, with what each node class of `target` makes of them."""
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
            tuple(_use(label, *choice) for choice in choices),
        )
        for label, properties in sorted(metadata.variants.items())
    )


def _use(label: str, machines: str, choice: VariantChoice) -> VariantUse:
    if label == choice.label:
        return VariantUse(machines, "taken")
    reason = choice.reasons[label]
    if label in choice.undecided:
        return VariantUse(machines, "undecided", reason)
    return VariantUse(machines, "not-taken", reason)
