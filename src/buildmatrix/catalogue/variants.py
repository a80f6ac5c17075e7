"""What properties of wheel variants promise, and whether machines are such.

A provider would ask the machine itself (PEP 817, a draft). None is run here: the node class and the
catalogue say what there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from buildmatrix.catalogue.architectures import READY, Grade, grade
from buildmatrix.catalogue.drivers import is_beyond, toolkit_of
from buildmatrix.catalogue.format.versions import VariantFeature
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.products import architectures
from buildmatrix.elf.isa import level_number
from buildmatrix.parsing import version_or_none
from buildmatrix.spec.model import NodeClass, Target
from buildmatrix.spec.version_range import numbers, version_range

State = Literal["yes", "no", "unknown"]
#: Of device code that runs, the best first.
RUNNING: tuple[Grade, ...] = (*READY, "jit")


@dataclass(frozen=True, slots=True)
class Promise:
    """One property, and what the catalogue says that it stands for."""

    namespace: str
    feature: str
    value: str
    #: None where the catalogue does not have the feature.
    owned: Owned[VariantFeature] | None
    #: `sm_90`, `x86-64-v3`, `12.8`; None where the value is none that the feature can have.
    meaning: str | None

    def __str__(self) -> str:
        return f"{self.namespace} :: {self.feature} :: {self.value}"

    @property
    def means(self) -> str:
        """See `VariantFeature.means`; empty where it is not known what is promised."""
        return self.owned.entry.means if self.owned is not None and self.meaning else ""

    def is_foreign(self, backend: str, catalogue: Catalogue) -> bool:
        """Whether it asks for devices of another vendor than that of `backend`."""
        vendor = self.owned.vendor if self.owned is not None else None
        return vendor is not None and catalogue.vendor_of(backend) != vendor


@dataclass(frozen=True, slots=True)
class Fit:
    """Support of machines for a feature, with the reason where it is missing or unknown."""

    state: State
    reason: str = ""
    #: Whether it is unknown because the catalogue does not have it.
    is_strange: bool = False


def promises(properties: Sequence[str], catalogue: Catalogue) -> tuple[Promise, ...]:
    """What properties promise; written as `Variant.properties` has them."""
    triples = (line.split(" :: ") for line in properties)
    return tuple(promise(*triple, catalogue=catalogue) for triple in triples)


def promise(namespace: str, feature: str, value: str, *, catalogue: Catalogue) -> Promise:
    """What one property promises."""
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
    """Whether the machines of `node` support a property; without one, those of `target`."""
    if promise.owned is None:
        name = f"{promise.namespace} :: {promise.feature}"
        return Fit("unknown", f"the catalogue does not know {name}", is_strange=True)
    if promise.is_foreign(target.backend, catalogue):
        return Fit("no", f"{promise} is for the backend {promise.owned.backend}")
    if promise.meaning is None:
        reason = f"the catalogue does not know the value of {promise}"
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
    """GPU architectures of the machines; those of the target where the node class has none."""
    return (node is not None and architectures(node, catalogue)) or target.archs


def _device_code(
    promise: Promise, code: str, target: Target, node: NodeClass | None, catalogue: Catalogue
) -> Fit:
    archs = devices(target, node, catalogue)
    if not archs:
        return Fit("unknown", f"nothing says which GPUs there are, and {promise} asks for one")
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
        return Fit("unknown", f"nothing says which `cpu` there is, and {promise} asks for {level}")
    return Fit("no", f"{promise} needs {level}, and {node.name} has {node.cpu}")


def _toolkit(
    promise: Promise, text: str, target: Target, node: NodeClass | None, catalogue: Catalogue
) -> Fit:
    """The driver of the machines says what they run; where it is not known, the target does."""
    driver = version_range(node.driver if node is not None else "")
    newest: str | None = None
    if promise.means != "toolkit" and driver.lowest is not None:
        newest = toolkit_of(driver.lowest, target.backend, catalogue)
    # What the newest driver of the tables runs, a newer one does, and perhaps more.
    is_open = newest is None or is_beyond(driver, target.backend, catalogue)
    promised, runs = version_or_none(text), version_or_none(newest or target.runtime)
    if promised is None or runs is None:
        return Fit("unknown", f"{promise}: nothing says which toolkit there is")
    if promise.means == "toolkit":
        same = promised.release[:2] == runs.release[:2]
        return Fit("yes") if same else Fit("no", f"{promise}, and the target has {target.runtime}")
    if promise.means == "toolkit-floor":
        if promised <= runs:
            return Fit("yes")
        if is_open:
            return Fit("unknown", f"{promise}: whether the driver runs {text} is not known")
        return Fit("no", f"{promise}, and driver {driver.text} runs {newest}")
    if promised <= runs:
        return Fit("no", f"{promise} is for drivers that do not run {newest or target.runtime}")
    if is_open or numbers(driver.text) is None:
        return Fit("unknown", f"{promise}: whether the driver is older than that is not known")
    return Fit("yes")
