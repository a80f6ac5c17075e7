"""Node class of a pod, by its node, else by its demands.

Nothing is guessed: a pod without an answer has no node class, and a sentence reports their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, listing
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.node_classes import ClassChooser
from buildmatrix.commands.node_lists import make_classes as written_classes
from buildmatrix.commands.node_lists import read_nodes
from buildmatrix.commands.nodes import Labels, Node, SeenNodes
from buildmatrix.fleet.reference_lists import SubjectSettings
from buildmatrix.matrix.model import NodeClass, Position

#: The backend of nodes without devices.
_HOST = "cpu"
#: Key, operator and values of an expression of Kubernetes' node affinity.
_Expression = tuple[str, str, tuple[str, ...]]


class NodeDemands(Struct, frozen=True):
    """A pod's demands on its node."""

    #: Empty while the pod is pending.
    node: str
    #: Required labels of the node.
    selector: tuple[tuple[str, str], ...]
    #: Alternatives, each with all its expressions.
    terms: tuple[tuple[_Expression, ...], ...]


class PodPlacements:
    """Node classes for the pods of one cluster; equal demands have equal classes."""

    def __init__(self, settings: SubjectSettings, catalogue: Catalogue) -> None:
        self._classes = {item.name: item for item in settings.node_classes}
        self._resources = Labels(catalogue.node_resources)
        self._known: dict[NodeDemands, tuple[str, ...]] = {}
        self._of_resource: dict[str, tuple[str, ...]] = {}
        self._has_nodes = bool(settings.nodes)
        self._source = ", ".join(settings.nodes)
        self._unplaced = 0
        self._doubtful: list[str] = []
        seen = read_nodes(settings.nodes, catalogue) if settings.nodes else SeenNodes()
        self._nodes = self._map_nodes(seen, catalogue)

    @property
    def node_classes(self) -> tuple[NodeClass, ...]:
        """Those of the settings, and others of the cluster."""
        return tuple(self._classes.values())

    def find_classes(self, pod: NodeDemands, resources: Sequence[str]) -> tuple[str, ...]:
        """Return the node classes of a container with these `resources`, which count last."""
        # Pods on one node have the same classes, whatever they requested.
        key = NodeDemands(pod.node, (), ()) if pod.node in self._nodes else pod
        if key not in self._known:
            self._known[key] = self._nodes.get(key.node) or self._select_classes(key)
        names = self._known[key]
        if not names:
            names = tuple(name for item in resources for name in self._with_resource(item))
        self._unplaced += not names
        return names

    def notes(self) -> Iterator[str]:
        """Yield sentences about missing answers."""
        if self._unplaced:
            why = "" if self._has_nodes else "; --nodes takes `kubectl get nodes -o json`"
            yield f"{count(self._unplaced, 'container')} of which nothing says the node class{why}"
        if self._doubtful:
            yield (
                f"{count(len(self._doubtful), 'node')} with labels or resources of an accelerator "
                f"that the catalogue does not know: {listing(self._doubtful)}"
            )

    def _map_nodes(self, seen: SeenNodes, catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
        """Map nodes to their classes; classes missing from the specification are added."""
        chooser = ClassChooser(self.node_classes, catalogue)
        strangers = []
        for node in seen.nodes:
            machines = [item for item in node.machines if chooser.choose(item, node.labels) is None]
            if machines:
                strangers.append(replace(node, machines=tuple(machines)))
        for node_class in written_classes(SeenNodes(strangers), catalogue, self._source):
            self._add(node_class)
        chooser = ClassChooser(self.node_classes, catalogue)
        nodes: dict[str, tuple[str, ...]] = {}
        for node in seen.nodes:
            chosen = [chooser.choose(machine, node.labels) for machine in node.machines]
            names = [item[0] for item in chosen if item is not None]
            if not node.machines:
                names = list(self._without_devices(node))
            if names:
                nodes[node.name] = tuple(dict.fromkeys(names))
        return nodes

    def _without_devices(self, node: Node) -> Iterator[str]:
        """Yield the class of a node without devices; none if it may have unknown ones."""
        if node.unknown:
            self._doubtful.append(node.name)
            return
        labels = node.labels or {}
        own = [item for item in self._classes.values() if item.backend == _HOST]
        labelled = [
            item
            for item in own
            if item.labels and all(labels.get(key) == value for key, value in item.labels.items())
        ]
        fitting = labelled or [item for item in own if not item.labels]
        if not fitting:
            fitting = [self._add(_make_class(_HOST, _HOST, self._source))]
        yield fitting[0].name

    def _with_resource(self, name: str) -> tuple[str, ...]:
        """Return the classes of nodes with a resource; none for `memory` and the like."""
        if name not in self._of_resource:
            backends = {item.backend for item in self._resources.statements(name, "1")}
            own = [item for item in self._classes.values() if item.backend in backends]
            exact = [item for item in own if name in item.resources]
            # A class that lists its resources has no others.
            fitting = exact or [item for item in own if not item.resources]
            if not fitting:
                made = (_make_class(name, backend, name, name) for backend in sorted(backends))
                fitting = [self._add(item) for item in made]
            self._of_resource[name] = tuple(item.name for item in fitting)
        return self._of_resource[name]

    def _add(self, node_class: NodeClass) -> NodeClass:
        """Add a class under a unique name."""
        name, number = node_class.name, 1
        while name in self._classes:
            number += 1
            name = f"{node_class.name}-{number}"
        self._classes[name] = replace(node_class, name=name)
        return self._classes[name]

    def _select_classes(self, pod: NodeDemands) -> tuple[str, ...]:
        """Return the classes whose labels a pod selects."""
        wanted = tuple((key, "In", (value,)) for key, value in pod.selector)
        terms = [(*wanted, *term) for term in pod.terms] or [wanted]
        return tuple(
            item.name
            for item in self._classes.values()
            if any(_matches_term(item, term) for term in terms)
        )


def _make_class(name: str, backend: str, source: str, resource: str = "") -> NodeClass:
    return NodeClass(
        name=name,
        backend=backend,
        driver="",
        archs=(),
        labels={},
        runs=(),
        position=Position(source, 1),
        resources=(resource,) if resource else (),
    )


def _matches_term(node_class: NodeClass, term: Iterable[_Expression]) -> bool:
    """True if expressions select a label of a class, and none excludes one."""
    is_asked_for = False
    for key, operator, values in term:
        own = node_class.labels.get(key)
        if own is None:
            continue
        if operator in ("In", "NotIn"):
            fits = (own in values) == (operator == "In")
        elif operator in ("Gt", "Lt") and _is_number(own) and len(values) == 1:
            fits = _is_number(values[0]) and (
                int(own) > int(values[0]) if operator == "Gt" else int(own) < int(values[0])
            )
        else:
            fits = operator == "Exists"
        if not fits:
            return False
        is_asked_for |= operator != "NotIn"
    return is_asked_for


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20
