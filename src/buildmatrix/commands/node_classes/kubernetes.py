"""Nodes of a cluster from the output of `kubectl get nodes -o json`.

The fields are those of the Kubernetes API, core/v1: NodeList, Node, NodeSystemInfo, Taint. Only
needed fields are decoded: most of a node's description are images and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.tables import NodeField
from buildmatrix.commands.node_classes.labels import Labels, Reading, Statement, make_readings
from buildmatrix.commands.node_classes.model import Machine, Node, SeenNodes
from buildmatrix.threads import prepare_type

Document = TypeVar("Document")

#: Taints for a node's temporary state (Kubernetes, "Taints and Tolerations").
_TEMPORARY = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
#: Nodes of one list. Kubernetes itself is made for 5,000.
MOST = 100_000
_WHOLE = re.compile(r"[0-9]{1,6}")


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _Spec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _NodeInfo(msgspec.Struct, rename="camel"):
    kernel_version: str = ""
    container_runtime_version: str = ""
    architecture: str = ""


class _Status(msgspec.Struct, rename="camel"):
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    node_info: _NodeInfo | None = None


class KubernetesNode(msgspec.Struct):
    """The needed fields of a Node."""

    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def __post_init__(self) -> None:
        """Count the node: a list of empty tables takes a hundred times its size in memory."""
        _decoded.number += 1
        if _decoded.number > MOST:
            raise ValueError(f"it has more than {MOST:,} nodes")


@dataclass(slots=True)
class _DecodedNodes:
    number: int = 0


#: Counter for the limit: msgspec decodes a list as a whole, and only its items can stop that.
_decoded = _DecodedNodes()


def decode(data: bytes, kind: type[Document]) -> Document:
    """Decode a document with nodes in it. Raises the errors of msgspec."""
    _decoded.number = 0
    return msgspec.json.decode(data, type=prepare_type(kind))


class NodeReader:
    """Reads the nodes of one cluster, most of which have the description of an earlier one."""

    def __init__(self, catalogue: Catalogue, seen: SeenNodes) -> None:
        self._labels = Labels(catalogue.node_labels)
        self._resources = Labels(catalogue.node_resources)
        self._seen = seen
        self._described: dict[object, tuple[Machine, ...]] = {}

    def read(self, items: Iterable[KubernetesNode]) -> None:
        """Add nodes to `seen`."""
        self._seen.nodes.extend(map(self._node, items))

    def _node(self, item: KubernetesNode) -> Node:
        labels = item.metadata.labels or {}
        # Without irrelevant labels: a timestamp would make every node different.
        relevant = [(key, value) for key, value in labels.items() if self._labels.says(key)]
        capacity = item.status.capacity or item.status.allocatable or {}
        offered = [
            (name, str(amount))
            for name, amount in capacity.items()
            if str(amount) != "0" and self._resources.says(name)
        ]
        taints = tuple(sorted(_format_taints(item.spec.taints or ())))
        info = item.status.node_info or _NodeInfo()
        unknown = (
            *filter(self._labels.is_unknown, labels),
            *filter(self._resources.is_unknown, capacity),
        )
        for key in unknown:
            self._seen.unknown[key] = self._seen.unknown.get(key, 0) + 1
        place = (
            *(tuple(sorted(relevant)), tuple(sorted(offered)), taints),
            *(info.kernel_version, info.container_runtime_version, info.architecture),
        )
        machines = self._described.get(place)
        if machines is None:
            machines = tuple(self._machines(dict(relevant), dict(offered), taints, info))
            self._described[place] = machines
        return Node(item.metadata.name, machines, labels, unknown)

    def _machines(
        self,
        labels: Mapping[str, str],
        offered: Mapping[str, str],
        taints: tuple[str, ...],
        info: _NodeInfo,
    ) -> Iterator[Machine]:
        said = [
            statement
            for key, value in labels.items()
            for statement in self._labels.statements(key, value)
        ]
        resources = [
            statement
            for name, amount in offered.items()
            for statement in self._resources.statements(name, amount)
        ]
        by_label, by_resource = make_readings(said), make_readings(resources)
        cpu = [
            reading.values[0]
            for (_, field), reading in by_label.items()
            if field == "cpu" and info.architecture == "amd64"
        ]
        for backend in sorted(_find_backends(by_label, by_resource)):
            yield _make_machine(
                backend,
                by_label,
                by_resource,
                resources=_select_resources(resources, backend),
                labels=labels,
                taints=taints,
                kernel=info.kernel_version,
                container_runtime=info.container_runtime_version.replace("://", " ", 1),
                cpu=cpu[0] if cpu else "",
            )


def _find_backends(*tables: Mapping[tuple[str, NodeField], Reading]) -> set[str]:
    """Return the backends with devices on a node."""
    return {backend for table in tables for backend, field in table if field != "cpu"}


def _select_resources(resources: Iterable[Statement], backend: str) -> tuple[str, ...]:
    return tuple(sorted({item.key for item in resources if item.backend == backend}))


def _make_machine(
    backend: str,
    by_label: Mapping[tuple[str, NodeField], Reading],
    by_resource: Mapping[tuple[str, NodeField], Reading],
    *,
    resources: tuple[str, ...],
    labels: Mapping[str, str],
    taints: tuple[str, ...],
    kernel: str,
    container_runtime: str,
    cpu: str,
) -> Machine:
    nothing = Reading((), ())

    def of(field: NodeField) -> Reading:
        """Return the reading of a label, else that of a resource."""
        place = (backend, field)
        return by_label.get(place) or by_resource.get(place) or nothing

    def first(field: NodeField) -> str:
        return next(iter(of(field).values), "")

    identity = dict.fromkeys((*of("product").keys, *of("partition").keys))
    counts = [int(value) for value in of("count").values if _WHOLE.fullmatch(value)]
    return Machine(
        backend=backend,
        products=tuple(sorted(set(of("product").values))),
        archs=tuple(sorted(set(of("arch").values))),
        driver=first("driver"),
        memory=first("memory"),
        count=sum(counts),
        partitions=tuple(sorted(set(of("partition").values))),
        kernel=kernel,
        container_runtime=container_runtime,
        cpu=cpu,
        resources=resources,
        taints=taints,
        labels=tuple((key, labels[key]) for key in sorted(identity) if key in labels),
    )


def _format_taints(taints: Sequence[_Taint]) -> Iterator[str]:
    """Yield permanent taints, as `kubectl taint` spells them."""
    for taint in taints:
        if not taint.key.startswith(_TEMPORARY):
            value = f"={taint.value}" if taint.value else ""
            yield f"{taint.key}{value}" + (f":{taint.effect}" if taint.effect else "")
