"""Which variant of a release a target takes, by the order of PEP 825 (a draft).

Unknown properties of the machines are reported, and a variant that asks for one is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.architectures import grade
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.variants import (
    RUNNING,
    Fit,
    Promise,
    devices,
    fit,
    promise,
)
from buildmatrix.elf.isa import level_number
from buildmatrix.inventory.variants import Properties, VariantMetadata
from buildmatrix.parsing import version_or_none
from buildmatrix.spec.model import NodeClass, Target

_Property = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """Which variant of a release the machines take."""

    #: None where none of them fits for sure.
    label: str | None
    #: Of each variant that is not taken, why; the preferred ones first.
    reasons: Mapping[str, str]
    #: Variants that would be preferred if they fit, which is not known.
    undecided: tuple[str, ...] = ()


def choose_variant(
    metadata: VariantMetadata, node: NodeClass | None, target: Target, catalogue: Catalogue
) -> VariantChoice:
    """The variant that an installer takes for `target` on the machines of `node`.

    Without a node class those of the target are meant. No provider is run.
    """
    promised = {
        triple: promise(*triple, catalogue=catalogue)
        for properties in metadata.variants.values()
        for triple in _triples(properties)
    }
    fits = {triple: fit(item, target, node, catalogue) for triple, item in promised.items()}
    variants = {label: _fit(properties, fits) for label, properties in metadata.variants.items()}
    archs = devices(target, node, catalogue)

    def preferred(*states: str) -> tuple[str, ...]:
        items = [item for triple, item in promised.items() if fits[triple].state in states]
        return ordered(metadata, _supported(metadata, items, archs, catalogue))

    sure, possible = preferred("yes"), preferred("yes", "unknown")
    label = next(iter(sure), None)
    order = (*possible, *sorted(set(variants) - set(possible)))
    better = possible if label is None else possible[: possible.index(label)]
    return VariantChoice(
        label,
        {name: variants[name].reason or f"{label} is preferred" for name in order if name != label},
        tuple(name for name in better if variants[name].state == "unknown"),
    )


def _triples(properties: Properties) -> Iterator[_Property]:
    for namespace, features in properties.items():
        for feature, values in features.items():
            for value in values:
                yield namespace, feature, value


def _fit(properties: Properties, fits: Mapping[_Property, Fit]) -> Fit:
    """Of a whole variant: of each feature, one value has to fit."""
    order = ("yes", "unknown", "no")
    best_of_each = (
        min(
            (fits[namespace, feature, value] for value in values),
            key=lambda result: order.index(result.state),
        )
        for namespace, features in properties.items()
        for feature, values in features.items()
    )
    return max(best_of_each, key=lambda result: order.index(result.state), default=Fit("yes"))


def _supported(
    metadata: VariantMetadata,
    items: Sequence[Promise],
    archs: Sequence[str],
    catalogue: Catalogue,
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """What `ordered` asks for: the order of the catalogue, behind that of the metadata itself."""
    result: dict[str, dict[str, list[str]]] = {}
    for namespace in metadata.namespaces:
        values: dict[str, list[Promise]] = {}
        for item in items:
            if item.namespace == namespace:
                values.setdefault(item.feature, []).append(item)
        usual = [
            feature
            for owned in catalogue.variant_features
            if owned.entry.namespace == namespace
            for feature in owned.entry.features
        ]
        features = (*metadata.features.get(namespace, ()), *usual, *sorted(values))
        first = metadata.values.get(namespace, {})
        result[namespace] = {
            feature: _with_first(
                first.get(feature, ()),
                [
                    item.value
                    for item in sorted(values[feature], key=lambda item: _rank(item, archs))
                ],
            )
            for feature in dict.fromkeys(features)
            if feature in values
        }
    return result


def _with_first(first: Sequence[str], values: Collection[str]) -> list[str]:
    return [*(value for value in first if value in values), *(v for v in values if v not in first)]


def _rank(item: Promise, archs: Sequence[str]) -> tuple[int | str, ...]:
    """Where a value stands among those of its feature: the smaller, the more it is preferred."""
    meaning = item.meaning or ""
    match item.means:
        case "toolkit-floor" | "toolkit-ceiling" | "toolkit":
            version = version_or_none(meaning)
            # `12.0` before `12`, as NVIDIA's provider has it.
            numbers = (*version.release, -1) if version is not None else ()
            return tuple(-number for number in numbers[:2])
        case "instruction-level":
            return (-(level_number(meaning) or 0),)
        case "device-code":
            worst = max((RUNNING.index(grade(arch, [meaning])) for arch in archs), default=0)
            number = re.search(r"[0-9]+", meaning)
            return worst, -int(number[0]) if number is not None else 0, meaning
        case "library" if item.owned is not None:
            return (list(item.owned.entry.libraries).index(meaning),)
    return (item.value,)


def ordered(
    metadata: VariantMetadata, supported: Mapping[str, Mapping[str, Sequence[str]]]
) -> tuple[str, ...]:
    """Labels of the variants that are supported, the preferred one first ("Variant ordering").

    `supported`: namespace → feature → values, each in the order of preference.
    """
    places = {
        (namespace, feature, value): (number, place, rank)
        for number, namespace in enumerate(metadata.namespaces)
        for place, (feature, values) in enumerate(supported.get(namespace, {}).items())
        for rank, value in enumerate(values)
    }
    nowhere = (len(metadata.namespaces), 0, 0)
    keys: dict[str, tuple[list[tuple[int, int, int]], str]] = {}
    for label, properties in metadata.variants.items():
        best = sorted(
            min(places.get((namespace, feature, value), nowhere) for value in values)
            for namespace, features in properties.items()
            for feature, values in features.items()
        )
        if nowhere not in best:
            # Of two with the same beginning the longer one comes first.
            keys[label] = ([*best, nowhere], label)
    return tuple(sorted(keys, key=lambda label: keys[label]))
