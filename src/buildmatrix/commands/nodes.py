"""Machines of a cluster: nodes of Kubernetes, with their labels read by the catalogue.

The fields are those of the Kubernetes API, core/v1: NodeList, Node, NodeSystemInfo, Taint. Only
needed fields are decoded: most of a node's description are images and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.model import GlobIndex
from buildmatrix.catalogue.tables import NodeField, NodeLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Attributes that determine a machine's class; unknown ones are empty, or 0."""

    backend: str
    #: Spelling of a label or a tool.
    products: tuple[str, ...] = ()
    #: From labels; the catalogue has those of the products.
    archs: tuple[str, ...] = ()
    driver: str = ""
    #: Memory of one device, as a size in a specification: `81559MiB`.
    memory: str = ""
    count: int = 0
    #: Without duplicates: a device may be divided into several sizes.
    partitions: tuple[str, ...] = ()
    kernel: str = ""
    container_runtime: str = ""
    cpu: str = ""
    resources: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    #: The labels that identify the devices, in order.
    labels: tuple[tuple[str, str], ...] = ()


class Node(Struct, frozen=True):
    """One machine by name, with its attributes per backend of its devices."""

    name: str
    machines: tuple[Machine, ...]
    #: All labels; None for a host outside of a cluster.
    labels: Mapping[str, str] | None = None
    #: Its accelerator-like labels and resources that the catalogue does not know.
    unknown: tuple[str, ...] = ()


class SeenNodes(Struct):
    """All machines of some files, and unknown labels in them."""

    nodes: list[Node] = field(default_factory=list)
    #: Accelerator-like keys of labels and names of resources that the catalogue does not know, to
    #: the number of nodes with them.
    unknown: dict[str, int] = field(default_factory=dict)


# Meaning of labels and resources, by the catalogue


#: Longest key with value of a label (Kubernetes: 317 and 63 characters), and name of a resource.
#: Patterns of the catalogue are not tried on longer ones.
LONGEST = 512


class Statement(Struct, frozen=True):
    """Value of one field from one label."""

    backend: str
    field: NodeField
    #: Position of the entry: the first entry with a value wins.
    rank: int
    value: str
    form: str
    part: int
    key: str


class Reading(Struct, frozen=True):
    """Values of one field of one backend from a node's labels."""

    values: tuple[str, ...]
    #: The labels with these values.
    keys: tuple[str, ...]


class Labels:
    """One table of the catalogue, cached by key since most nodes have the same labels."""

    def __init__(self, entries: Sequence[Owned[NodeLabel]]) -> None:
        self._index = GlobIndex(
            (glob, (rank, glob, owned))
            for rank, owned in enumerate(entries)
            for glob in owned.entry.names
        )
        self._by_key: dict[str, Sequence[tuple[int, Owned[NodeLabel]]]] = {}

    def entries(self, key: str) -> Sequence[tuple[int, Owned[NodeLabel]]]:
        """Return the entries for a key, in order: those with the most exact glob."""
        entries = self._by_key.get(key)
        if entries is None:
            matching = self._index.find(key) if len(key) <= LONGEST else ()
            best = matching[0][1] if matching else None
            entries = sorted(
                ((rank, owned) for rank, glob, owned in matching if glob == best),
                key=lambda item: item[0],
            )
            if len(self._by_key) < 100_000:
                self._by_key[key] = entries
        return entries

    def says(self, key: str) -> bool:
        """True if a label with this key can determine a field of a class."""
        return any(owned.entry.field not in ("known", "unknown") for _, owned in self.entries(key))

    def is_unknown(self, key: str) -> bool:
        """True if a key looks like an accelerator's, and is otherwise unknown."""
        entries = self.entries(key)
        return bool(entries) and all(owned.entry.field == "unknown" for _, owned in entries)

    def statements(self, key: str, value: str) -> Iterable[Statement]:
        """Yield the statements of one label."""
        for rank, owned in self.entries(key):
            entry = owned.entry
            said = value
            if entry.pattern is not None:
                text = f"{key}={value}"
                match = re.fullmatch(entry.pattern, text) if len(text) <= LONGEST else None
                if match is None:
                    continue
                said = match.groupdict().get("value") or ""
            yield Statement(
                owned.backend, entry.field, rank, said, entry.form or "", entry.part, key
            )


def make_readings(statements: Iterable[Statement]) -> Mapping[tuple[str, NodeField], Reading]:
    """Return the reading of the first usable source for each backend and field.

    The labels of one form are one source: a major version without a minor is unusable.
    """
    sources: dict[tuple[str, NodeField], dict[object, list[Statement]]] = {}
    for statement in sorted(statements, key=lambda item: item.rank):
        field = sources.setdefault((statement.backend, statement.field), {})
        # Different spellings of a form (`cuda.driver-version.*` and `cuda.driver.*`) are different
        # sources, identified by the common part of their keys.
        is_part = statement.part > 0
        source = statement.key.rpartition(".")[0] if is_part else statement.rank
        field.setdefault(source, []).append(statement)
    table: dict[tuple[str, NodeField], Reading] = {}
    for place, groups in sources.items():
        for group in groups.values():
            values = tuple(filter(None, _combine_parts(group)))
            if values:
                keys = tuple(dict.fromkeys(item.key for item in group))
                table[place] = Reading(values, keys)
                break
    return table


def _combine_parts(group: Sequence[Statement]) -> Iterable[str]:
    form = group[0].form
    if not form:
        return [item.value for item in group]
    wanted = set(re.findall(r"\{(\d)\}", form))
    parts = {str(item.part): item.value for item in group if item.part}
    if not wanted <= parts.keys() or ("1" in wanted and not parts["1"]):
        return ()
    text = re.sub(r"\{(\d)\}", lambda match: parts[match[1]], form)
    # The last part of a version may be empty.
    return (re.sub(r"\.+$", "", text),)


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


class _DecodedNodes(Struct):
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
        # A label counts before a resource.
        readings = {**by_resource, **by_label}
        cpu = [reading.values[0] for (_, about), reading in by_label.items() if about == "cpu"]
        for backend in sorted({owner for owner, about in readings if about != "cpu"}):
            own = {about: reading for (of, about), reading in readings.items() if of == backend}
            values = {about: reading.values for about, reading in own.items()}
            identity = {
                key
                for about, reading in own.items()
                if about in ("product", "partition")
                for key in reading.keys
            }
            yield Machine(
                backend=backend,
                products=tuple(sorted({*values.get("product", ())})),
                archs=tuple(sorted({*values.get("arch", ())})),
                driver=values.get("driver", ("",))[0],
                memory=values.get("memory", ("",))[0],
                count=sum(int(text) for text in values.get("count", ()) if _WHOLE.fullmatch(text)),
                partitions=tuple(sorted({*values.get("partition", ())})),
                kernel=info.kernel_version,
                container_runtime=info.container_runtime_version.replace("://", " ", 1),
                cpu=cpu[0] if cpu and info.architecture == "amd64" else "",
                resources=tuple(sorted({one.key for one in resources if one.backend == backend})),
                taints=taints,
                labels=tuple((key, labels[key]) for key in sorted(identity) if key in labels),
            )


def _format_taints(taints: Sequence[_Taint]) -> Iterator[str]:
    """Yield permanent taints, as `kubectl taint` spells them."""
    for taint in taints:
        if not taint.key.startswith(_TEMPORARY):
            value = f"={taint.value}" if taint.value else ""
            yield f"{taint.key}{value}" + (f":{taint.effect}" if taint.effect else "")
