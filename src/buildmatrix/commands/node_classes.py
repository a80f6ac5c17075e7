"""Comparison of a specification's node classes with existing machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from packaging.specifiers import InvalidSpecifier
from packaging.version import InvalidVersion

from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError
from buildmatrix.base.parsing import parse_specifiers, parse_version
from buildmatrix.base.text import size
from buildmatrix.catalogue.drivers import architectures, product, same_memory
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import matches_any, product_patterns, product_words
from buildmatrix.commands.nodes import Machine, SeenNodes
from buildmatrix.matrix import kinds
from buildmatrix.matrix.model import NodeClass, Spec
from buildmatrix.reports.doctor import (
    CheckState,
    ClassCheck,
    ClassState,
    NodeClassCheck,
    NodeDifference,
    Uncovered,
)

_LEVELS = kinds.CPU_LEVEL.choices
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_SEPARATORS = re.compile(r"[.+~_ -]")


class _MachineKind(Struct, frozen=True):
    """Attributes that decide a machine's class, the same for most of a cluster."""

    machine: Machine
    #: Values of labels that any class names; None for a host, which has none.
    labels: tuple[tuple[str, str], ...] | None


class _ClassCount(Struct):
    nodes: int = 0
    #: True if some of them are nodes of a cluster.
    in_cluster: bool = False
    differences: dict[NodeDifference, list[str]] = field(default_factory=dict)


def check_node_classes(
    spec: Spec, sources: Sequence[str], seen: SeenNodes, catalogue: Catalogue
) -> NodeClassCheck:
    """Return every class with its machines and their differences, and unclassified machines.

    A machine belongs to the class with its labels; without labels, its products, architectures and
    resources decide. Of several classes, the one with the fewest differences wins.
    """
    counted = {node_class.name: _ClassCount() for node_class in spec.node_classes}
    uncovered: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    chooser = ClassChooser(spec.node_classes, catalogue)
    for node in seen.nodes:
        for machine in node.machines:
            choice = chooser.choose(machine, node.labels)
            if choice is None:
                place = (machine.backend, machine.products, machine.resources)
                uncovered.setdefault(place, []).append(node.name)
                continue
            name, differences = choice
            counted[name].nodes += 1
            counted[name].in_cluster |= node.labels is not None
            for difference in differences:
                counted[name].differences.setdefault(difference, []).append(node.name)
    backends = {target.backend for target in spec.targets}
    is_cluster = any(node.labels is not None for node in seen.nodes) or not seen.nodes
    classes = tuple(
        _make_class_check(node_class, counted[node_class.name]) for node_class in spec.node_classes
    )
    states = {item.state for item in classes}
    if not is_cluster:
        # The diagnoses of some hosts need not cover all classes.
        states.discard("no-nodes")
    strangers = tuple(
        Uncovered(
            backend=backend,
            in_specification=backend in backends,
            products=products,
            resources=resources,
            nodes=tuple(sorted(names)),
        )
        for (backend, products, resources), names in sorted(uncovered.items())
    )
    state: CheckState = "undecided" if "undecided" in states else "ok"
    if states & {"drift", "no-nodes"} or any(item.in_specification for item in strangers):
        state = "drift"
    return NodeClassCheck(
        specification=str(spec.path),
        sources=tuple(sources),
        state=state,
        nodes=len(seen.nodes),
        classes=classes,
        uncovered=strangers,
        unknown=dict(sorted(seen.unknown.items())),
    )


def exit_code(held: NodeClassCheck) -> int:
    """Return 0 without drift, 1 with drift, 3 if data is missing."""
    codes: dict[CheckState, int] = {
        "ok": EXIT_OK,
        "drift": EXIT_FINDINGS,
        "undecided": UndecidedError.exit_code,
    }
    return codes[held.state]


def _make_class_check(node_class: NodeClass, counted: _ClassCount) -> ClassCheck:
    differences = tuple(
        replace(item, nodes=tuple(sorted(names)))
        for item, names in sorted(
            counted.differences.items(), key=lambda pair: (pair[0].field, pair[0].seen)
        )
    )
    states = {item.state for item in differences}
    state: ClassState = "undecided" if states else "ok"
    if not counted.nodes:
        state = "no-nodes"
    elif "drift" in states:
        state = "drift"
    # Labels and `doctor` lack these.
    unconfirmed = ["interconnect"] if node_class.interconnect and counted.nodes else []
    unconfirmed += ["cdi"] if node_class.cdi and counted.in_cluster else []
    return ClassCheck(
        name=node_class.name,
        backend=node_class.backend,
        place=str(node_class.position),
        state=state,
        nodes=counted.nodes,
        differences=differences,
        not_compared=tuple(unconfirmed),
    )


class ClassChooser:
    """Finds the classes of machines, and remembers them for identical machines."""

    def __init__(self, classes: Sequence[NodeClass], catalogue: Catalogue) -> None:
        self._classes = classes
        self._catalogue = catalogue
        self._keys = {key for node_class in classes for key in node_class.labels}
        self._choices: dict[_MachineKind, tuple[str, tuple[NodeDifference, ...]] | None] = {}

    def choose(
        self, machine: Machine, labels: Mapping[str, str] | None
    ) -> tuple[str, tuple[NodeDifference, ...]] | None:
        """Return the class's name, and the machine's differences from it; None for no class."""
        held = None
        if labels is not None:
            held = tuple((key, labels[key]) for key in sorted(self._keys & labels.keys()))
        kind = _MachineKind(machine, held)
        if kind not in self._choices:
            self._choices[kind] = self._choose(kind)
        return self._choices[kind]

    def _choose(self, kind: _MachineKind) -> tuple[str, tuple[NodeDifference, ...]] | None:
        own = [item for item in self._classes if item.backend == kind.machine.backend]
        held = dict(kind.labels or ())
        labelled = [
            item
            for item in own
            if item.labels and all(held.get(key) == value for key, value in item.labels.items())
        ]
        # Later groups count only if earlier ones are empty: a fleet may have hundreds of classes. A
        # machine with changed labels has drifted, if it still resembles the class.
        for candidates in (
            labelled,
            (item for item in own if not item.labels and self._resembles(item, kind.machine)),
            (item for item in own if item.labels and self._resembles(item, kind.machine)),
        ):
            judged = [
                (item.name, tuple(_find_differences(item, kind, self._catalogue)))
                for item in candidates
            ]
            if judged:
                return min(judged, key=lambda pair: len(pair[1]))
        return None

    def _resembles(self, node_class: NodeClass, machine: Machine) -> bool:
        """True if the machine resembles the class in the first attribute that both have.

        Without a common attribute it may resemble the class: that is open, and not unclassified.
        """
        if node_class.products and machine.products:
            return _has_product(node_class, machine)
        wanted = architectures(node_class, self._catalogue)
        archs = _find_archs(machine, self._catalogue)
        if wanted and archs:
            return not set(wanted).isdisjoint(archs)
        if node_class.resources and machine.resources:
            return set(node_class.resources) <= set(machine.resources)
        return True


def _find_archs(machine: Machine, catalogue: Catalogue) -> tuple[str, ...]:
    owned = (product(name, machine.backend, catalogue) for name in machine.products)
    named = tuple(arch for item in owned if item for arch in item.entry.architectures)
    return named or machine.archs


def _has_product(node_class: NodeClass, machine: Machine) -> bool:
    patterns = [glob for name in node_class.products for glob in product_patterns(name)]
    return any(matches_any(patterns, product_words(name)) for name in machine.products)


def _differ(field: str, expected: str, seen: str, *, undecided: bool = False) -> NodeDifference:
    """Return a difference of one machine; `seen` is empty if it does not have the field."""
    return NodeDifference("undecided" if undecided else "drift", field, expected, seen, ())


def _find_differences(
    node_class: NodeClass, kind: _MachineKind, catalogue: Catalogue
) -> Iterator[NodeDifference]:
    machine = kind.machine
    if node_class.products:
        seen = ", ".join(machine.products)
        if not seen:
            yield _differ("products", ", ".join(node_class.products), "", undecided=True)
        elif not _has_product(node_class, machine):
            yield _differ("products", ", ".join(node_class.products), seen)
    if node_class.archs:
        archs = _find_archs(machine, catalogue)
        if archs and set(architectures(node_class, catalogue)).isdisjoint(archs):
            yield _differ("archs", ", ".join(node_class.archs), ", ".join(archs))
    held, partitions = machine.partitions, ", ".join(machine.partitions)
    runtimes = node_class.container_runtime, machine.container_runtime
    memory = size(node_class.memory) if node_class.memory else ""
    # Name, value of the class and of the machine, and their comparison; None if undecidable.
    fields: list[tuple[str, str, str, Callable[[str, str], bool | None]]] = [
        ("driver", node_class.driver, machine.driver, _matches_version),
        ("kernel", node_class.kernel, machine.kernel, _matches_version),
        ("count", str(node_class.count or ""), str(machine.count or ""), str.__eq__),
        ("memory", memory, machine.memory, lambda _, seen: _has_memory(node_class, seen)),
        ("partition", node_class.partition, partitions, lambda wanted, _: _has(held, wanted)),
        ("container-runtime", *runtimes, _matches_version),
        ("cpu", node_class.cpu, machine.cpu, _satisfies_level),
    ]
    # Discovery does not report the processor on most clusters, nor a host the others: that casts no
    # doubt on the class.
    needed = {"driver", "kernel", "count"}
    needed |= {"memory", "partition", "container-runtime"} if kind.labels is not None else set()
    for name, expected, seen, fits in fields:
        if expected and (seen or name in needed):
            answer = fits(expected, seen) if seen else None
            if not answer:
                yield _differ(name, expected, seen, undecided=answer is None)
    if machine.partitions and not node_class.partition and node_class.count:
        yield _differ("partition", "none", partitions)
    if kind.labels is not None:
        yield from _compare_cluster_fields(node_class, machine, dict(kind.labels))
    elif not {_cdi_kind(device) for device in node_class.cdi} <= set(map(_cdi_kind, machine.cdi)):
        yield _differ("cdi", ", ".join(node_class.cdi), ", ".join(machine.cdi))


def _cdi_kind(device: str) -> str:
    """Return `nvidia.com/gpu` for `nvidia.com/gpu=all`: a host lists kinds, not devices."""
    return device.partition("=")[0]


def _compare_cluster_fields(
    node_class: NodeClass, machine: Machine, labels: Mapping[str, str]
) -> Iterator[NodeDifference]:
    """Yield differences in attributes of cluster nodes: labels, resources and taints."""
    for key, value in node_class.labels.items():
        if labels.get(key) != value:
            yield _differ(f"labels.{key}", value, labels.get(key, ""))
    missing = [name for name in node_class.resources if name not in machine.resources]
    if missing:
        yield _differ("resources", ", ".join(missing), ", ".join(machine.resources))
    if node_class.tolerations:
        strange = [
            taint for taint in machine.taints if not _is_tolerated(taint, node_class.tolerations)
        ]
        if strange:
            expected = ", ".join(node_class.tolerations)
            yield _differ("tolerations", expected, ", ".join(strange))


def _is_tolerated(taint: str, tolerations: Iterable[str]) -> bool:
    """True if a toleration matches; one without value or effect matches all values or effects."""
    key, _, effect = taint.partition(":")
    name = key.partition("=")[0]
    for toleration in tolerations:
        other, _, other_effect = toleration.partition(":")
        if other_effect in ("", effect) and other in (key, name):
            return True
    return False


def _has_memory(node_class: NodeClass, seen: str) -> bool | None:
    return same_memory(node_class.memory, kinds.size(seen))


def _has(partitions: Iterable[str], wanted: str) -> bool:
    return product_words(wanted) in map(product_words, partitions)


def _matches_version(expected: str, seen: str) -> bool | None:
    """True if a version is in a range, or extends a version with fewer parts.

    Kernels (`5.15.0-1067-nvidia`) are compared with a range by their leading numbers. Returns None
    if undecidable.
    """
    if not kinds.is_range(expected):
        wanted, parts = _SEPARATORS.split(expected), _SEPARATORS.split(seen)
        return parts[: len(wanted)] == wanted
    release = _RELEASE.match(seen)
    if release is None:
        return None
    try:
        return parse_specifiers(expected).contains(parse_version(release[0]), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def _satisfies_level(expected: str, seen: str) -> bool:
    """True if processors of the level `seen` run code for the level `expected`."""
    return seen in _LEVELS and _LEVELS.index(seen) >= _LEVELS.index(expected)
