"""Wheel variants: the properties that they promise, and the variant that a target takes.

The order is that of PEP 825 (a draft). A provider would ask the machine itself (PEP 817, a draft).
None is run here: the node class and the catalogue describe the machines. A variant with an unknown
property is not taken, and the choice says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from buildmatrix.base.parsing import version_or_none
from buildmatrix.catalogue.drivers import READY, Grade, architectures, grade, is_beyond, toolkit_of
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.tables import VariantFeature
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.variants import Properties, VariantMetadata
from buildmatrix.matrix.kinds import numbers, version_range
from buildmatrix.matrix.model import NodeClass, Target

State = Literal["yes", "no", "unknown"]
#: Grades of device code that runs, the best first.
RUNNING: tuple[Grade, ...] = (*READY, "jit")


class Promise(Struct, frozen=True):
    """One property, and its meaning in the catalogue."""

    namespace: str
    feature: str
    value: str
    #: None if the catalogue lacks the feature.
    owned: Owned[VariantFeature] | None
    #: `sm_90`, `x86-64-v3`, `12.8`; None for an invalid value of the feature.
    meaning: str | None

    def __str__(self) -> str:
        return f"{self.namespace} :: {self.feature} :: {self.value}"

    @property
    def means(self) -> str:
        """See `VariantFeature.means`; empty if the meaning is unknown."""
        return self.owned.entry.means if self.owned is not None and self.meaning else ""

    def is_foreign(self, backend: str, catalogue: Catalogue) -> bool:
        """Return True if it requires devices of another vendor than that of `backend`."""
        vendor = self.owned.vendor if self.owned is not None else None
        return vendor is not None and catalogue.vendor_of(backend) != vendor


class Fit(Struct, frozen=True):
    """Support of machines for a feature, with the reason where it is missing or unknown."""

    state: State
    reason: str = ""
    #: True if it is unknown because the catalogue lacks it.
    is_strange: bool = False


def promises(properties: Sequence[str], catalogue: Catalogue) -> tuple[Promise, ...]:
    """Parse properties, written as in `Variant.properties`."""
    triples = (line.split(" :: ") for line in properties)
    return tuple(promise(*triple, catalogue=catalogue) for triple in triples)


def promise(namespace: str, feature: str, value: str, *, catalogue: Catalogue) -> Promise:
    """Look up the meaning of one property."""
    owned = next(
        (
            owned
            for owned in catalogue.variant_features
            if owned.entry.namespace == namespace and feature in owned.entry.features
        ),
        None,
    )
    meaning = None if owned is None else _meaning(owned.entry, value)
    return Promise(namespace, feature, value, owned, meaning)


def _meaning(entry: VariantFeature, value: str) -> str | None:
    if entry.means == "library":
        return value if value in entry.libraries else None
    if entry.means.startswith("toolkit"):
        return value if version_or_none(value) is not None else None
    if not entry.values:
        return value
    for pattern, template in entry.values.items():
        match = re.fullmatch(pattern, value)
        if match is not None:
            return match.expand(template)
    return None


def fit(promise: Promise, target: Target, node: NodeClass | None, catalogue: Catalogue) -> Fit:
    """Return the support of a property by the machines of `node`, or of `target` without one."""
    if promise.owned is None:
        name = f"{promise.namespace} :: {promise.feature}"
        return Fit("unknown", f"the catalogue does not have {name}", is_strange=True)
    if promise.is_foreign(target.backend, catalogue):
        return Fit("no", f"{promise} is for the backend {promise.owned.backend}")
    if promise.meaning is None:
        reason = f"the catalogue does not have the value of {promise}"
        return Fit("unknown", reason, is_strange=True)
    match promise.means:
        case "device-code":
            return _device_code(promise, promise.meaning, target, node, catalogue)
        case "instruction-level":
            return _level(promise, promise.meaning, target, node)
        case "library":
            return Fit("yes")
    return _toolkit(promise, promise.meaning, target, node, catalogue)


def devices(target: Target, node: NodeClass | None, catalogue: Catalogue) -> tuple[str, ...]:
    """Return GPU architectures of the machines; those of the target if the node class has none."""
    return (node is not None and architectures(node, catalogue)) or target.archs


def _device_code(
    promise: Promise, code: str, target: Target, node: NodeClass | None, catalogue: Catalogue
) -> Fit:
    archs = devices(target, node, catalogue)
    if not archs:
        return Fit("unknown", f"{promise} asks for a GPU, and the GPUs are unknown")
    lacking = [arch for arch in archs if grade(arch, [code]) not in RUNNING]
    if not lacking:
        return Fit("yes")
    return Fit("no", f"{promise} does not run on {', '.join(lacking)}")


def _level(promise: Promise, level: str, target: Target, node: NodeClass | None) -> Fit:
    if target.platform.partition("/")[2] != "amd64":
        return Fit("no", f"{promise} is for another processor than that of {target.platform}")
    needed = level_number(level) or 0
    has = level_number(node.cpu) if node is not None else None
    if needed <= (has or 1):
        return Fit("yes")
    if has is None or node is None:
        return Fit("unknown", f"{promise} asks for {level}, and the node class has no `cpu`")
    return Fit("no", f"{promise} needs {level}, and {node.name} has {node.cpu}")


def _toolkit(
    promise: Promise, text: str, target: Target, node: NodeClass | None, catalogue: Catalogue
) -> Fit:
    """Compare with the toolkits of the machines' driver; without a driver, with the target's."""
    driver = version_range(node.driver if node is not None else "")
    newest: str | None = None
    if promise.means != "toolkit" and driver.lowest is not None:
        newest = toolkit_of(driver.lowest, target.backend, catalogue)
    # What the newest driver of the tables runs, a newer one does, and perhaps more.
    is_open = newest is None or is_beyond(driver, target.backend, catalogue)
    promised, runs = version_or_none(text), version_or_none(newest or target.runtime)
    if promised is None or runs is None:
        return Fit("unknown", f"{promise}: the toolkit is unknown")
    if promise.means == "toolkit":
        same = promised.release[:2] == runs.release[:2]
        return Fit("yes") if same else Fit("no", f"{promise}, and the target has {target.runtime}")
    if promise.means == "toolkit-floor":
        if promised <= runs:
            return Fit("yes")
        if is_open:
            return Fit("unknown", f"{promise}: unknown if the driver runs {text}")
        return Fit("no", f"{promise}, and driver {driver.text} runs {newest}")
    if promised <= runs:
        return Fit("no", f"{promise} is for drivers that do not run {newest or target.runtime}")
    if is_open or numbers(driver.text) is None:
        return Fit("unknown", f"{promise}: unknown if the driver is older than that")
    return Fit("yes")


_Property = tuple[str, str, str]


class VariantChoice(Struct, frozen=True):
    """The variant of a release that the machines take."""

    #: None if none of them certainly fits.
    label: str | None
    #: Variant that is not taken → reason; the preferred ones first.
    reasons: Mapping[str, str]
    #: Preferred variants whose fit is unknown.
    undecided: tuple[str, ...] = ()


def choose_variant(
    metadata: VariantMetadata, node: NodeClass | None, target: Target, catalogue: Catalogue
) -> VariantChoice:
    """Choose the variant that an installer takes for `target` on the machines of `node`.

    Without a node class, on those of the target. No provider is run.
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
        return order_variants(metadata, _supported(metadata, items, archs, catalogue))

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
    """Return the fit of a whole variant: of each feature, one value must fit."""
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
    metadata: VariantMetadata, items: Sequence[Promise], archs: Sequence[str], catalogue: Catalogue
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the preferences for `order_variants`: the metadata's, then the catalogue's."""
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
        result[namespace] = {}
        for feature in dict.fromkeys(name for name in features if name in values):
            ranked = sorted(values[feature], key=lambda item: _rank(item, archs))
            first = metadata.values.get(namespace, {}).get(feature, ())
            # Each once, those that the metadata prefer first.
            every = dict.fromkeys((*first, *(item.value for item in ranked)))
            given = {item.value for item in ranked}
            result[namespace][feature] = [value for value in every if value in given]
    return result


def _rank(item: Promise, archs: Sequence[str]) -> tuple[int | str, ...]:
    """Return the rank of a value among those of its feature: lower is better."""
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


def order_variants(
    metadata: VariantMetadata, supported: Mapping[str, Mapping[str, Sequence[str]]]
) -> tuple[str, ...]:
    """Return labels of supported variants, the preferred one first ("Variant ordering").

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
            # Of two with the same prefix, the longer one comes first.
            keys[label] = ([*best, nowhere], label)
    return tuple(sorted(keys, key=lambda label: keys[label]))
