"""Images run by a cluster, from the output of `kubectl get pods -A -o json`.

The fields are those of the Kubernetes API, core/v1: PodList, PodSpec, ContainerStatus. Only needed
fields are decoded. `placement` determines the node class of a pod.
"""

from __future__ import annotations

import mmap
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.text import count, listing, printable
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.fleet.model import Subject
from buildmatrix.fleet.placement import NodeDemands, PodPlacements
from buildmatrix.fleet.reference_lists import (
    OWNER_LABELS,
    SubjectList,
    SubjectSettings,
    limit_places,
    normalize_reference,
)
from buildmatrix.net.registry_mirrors import Reference

#: Size limit of a file, which is mapped, and of standard input. A pod has 5 to 20 kB.
LARGEST = 4_000_000_000
LARGEST_STREAM = 1_000_000_000
#: Pods and containers of one list. Kubernetes itself is made for 150,000 pods.
MOST_PODS = 300_000
MOST_CONTAINERS = 2_000_000
_WANTED = "write one with `kubectl get pods -A -o json`"
#: Prefix of images from a registry in runtimes before containerd.
_PULLABLE = "docker-pullable://"
_PINNED = re.compile(r"[^@]+@sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})")


#: Counters for the limits: msgspec decodes a list as a whole, and only its items can stop that.
_decoded = Counter[str]()


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None


class _Resources(msgspec.Struct):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct):
    name: str = ""
    image: str = ""
    resources: _Resources | None = None

    def __post_init__(self) -> None:
        _decoded["containers"] += 1
        if _decoded["containers"] > MOST_CONTAINERS:
            raise ValueError(f"it has more than {MOST_CONTAINERS:,} containers")


class _Expression(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_expressions: list[_Expression] | None = None


class _Required(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    image_id: str = msgspec.field(default="", name="imageID")


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct):
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    def __post_init__(self) -> None:
        _decoded["pods"] += 1
        if _decoded["pods"] > MOST_PODS:
            raise ValueError(f"it has more than {MOST_PODS:,} pods")


class _List(msgspec.Struct):
    kind: str = ""
    items: list[_Pod] | None = None


def read_pods(name: str, settings: SubjectSettings, catalogue: Catalogue) -> SubjectList:
    """List the images of the pods in a file; `-` is standard input.

    Raises `UsageError` for a file that cannot be read, is too large, or lists no pods.
    """
    title = "standard input" if name == "-" else name
    with _open_bytes(name, title) as data:
        pods = _decode(data, title)
    images = _PodImages(settings, PodPlacements(settings, catalogue))
    for pod in pods:
        images.add(pod)
    return images.listing(title)


@contextmanager
def _open_bytes(name: str, title: str) -> Iterator[bytes | mmap.mmap]:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST_STREAM + 1)
            if len(data) > LARGEST_STREAM:
                raise UsageError(
                    f"{title} has more than {LARGEST_STREAM:,} bytes; write it to a file"
                )
            yield data
            return
        with Path(name).open("rb") as file:
            size = file.seek(0, 2)
            if size > LARGEST:
                raise UsageError(
                    f"{title} has more than {LARGEST:,} bytes; write a list of pods only"
                )
            if not size:
                raise UsageError(f"{title} is empty; {_WANTED}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{title} cannot be read: {reason}; {_WANTED}") from error


def _decode(data: bytes | mmap.mmap, title: str) -> list[_Pod]:
    _decoded.clear()
    try:
        document = msgspec.json.decode(data, type=prepare_type(_List))
        if document.kind == "Pod":
            return [msgspec.json.decode(data, type=prepare_type(_Pod))]
    except msgspec.ValidationError as error:
        raise UsageError(f"{title} is not a list of pods ({error}); {_WANTED}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{title} is not whole JSON: {error}; {_WANTED}") from error
    except RecursionError:
        raise UsageError(f"{title} nests too deeply to be a list of pods") from None
    others = sorted({pod.kind for pod in document.items or ()} - {"", "Pod"})
    if document.items is None or document.kind not in ("List", "PodList") or others:
        kind = f"lists {listing(map(printable, others))}" if others else "is not a list of pods"
        raise UsageError(f"{title} {kind}; {_WANTED}")
    return document.items


class _PodImage(Struct):
    """Data about one image from all pods."""

    places: dict[str, None] = field(default_factory=dict)
    node_classes: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    containers: int = 0


class _PodImages:
    """The images of the pods added."""

    def __init__(self, settings: SubjectSettings, placements: PodPlacements) -> None:
        self._owner_labels = (*settings.owner_labels, *OWNER_LABELS)
        self._placements = placements
        self._images: dict[str, _PodImage] = {}
        #: Image in a pod to its reference, or its error.
        self._references: dict[tuple[str, str], str | UndecidedError] = {}
        self._ended = self._pending = self._unpinned = 0
        self._wrong: dict[str, str] = {}

    def add(self, pod: _Pod) -> None:
        """Count the containers of a pod. Ended pods need no node."""
        if pod.status.phase in ("Succeeded", "Failed"):
            self._ended += 1
            return
        is_running = pod.status.phase != "Pending"
        self._pending += not is_running
        name = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
        labels = pod.metadata.labels or {}
        owner = next((labels[key] for key in self._owner_labels if labels.get(key)), "")
        demands = _make_demands(pod)
        for container, image_id in _list_containers(pod):
            key = container.image, image_id
            if key not in self._references:
                self._references[key] = _find_reference(*key)
            reference = self._references[key]
            if isinstance(reference, UndecidedError):
                self._wrong.setdefault(name, reference.message)
                continue
            self._unpinned += is_running and "@" not in reference
            image = self._images.setdefault(reference, _PodImage())
            image.places.setdefault(f"pod {name}")
            image.node_classes.update(
                self._placements.find_classes(demands, _list_resources(container))
            )
            image.containers += is_running
            if owner:
                image.owners.add(owner)

    def listing(self, title: str) -> SubjectList:
        """Return the images of all added pods."""
        subjects = tuple(
            Subject(
                reference=reference,
                places=limit_places(image.places),
                node_classes=tuple(sorted(image.node_classes)),
                containers=image.containers,
                owner=listing(sorted(image.owners)),
            )
            for reference, image in sorted(self._images.items())
        )
        wrong = [f"{title}: pod {name}: {message}" for name, message in self._wrong.items()]
        missing = wrong[:5]
        if more := len(wrong) - len(missing):
            missing.append(f"{title}: and {count(more, 'more such pod')}")
        return SubjectList(
            subjects=subjects,
            missing=tuple(missing),
            notes=tuple(self._notes(title)),
            node_classes=self._placements.node_classes,
        )

    def _notes(self, title: str) -> Iterator[str]:
        if self._ended:
            yield f"{title}: {count(self._ended, 'pod')} that ended left out"
        if self._pending:
            yield (
                f"{title}: the images of {count(self._pending, 'pod')} that wait to be started are "
                "judged, and their containers not counted"
            )
        if self._unpinned:
            yield (
                f"{title}: {count(self._unpinned, 'container')} whose digest the cluster does not "
                "say; their tags are taken as they are now"
            )
        for note in self._placements.notes():
            yield f"{title}: {note}"


def _list_containers(pod: _Pod) -> Iterator[tuple[_Container, str]]:
    """Yield each container, with the image id from the node."""
    for containers, statuses in (
        (pod.spec.containers, pod.status.container_statuses),
        (pod.spec.init_containers, pod.status.init_container_statuses),
        (pod.spec.ephemeral_containers, pod.status.ephemeral_container_statuses),
    ):
        pulled = {status.name: status.image_id for status in statuses or ()}
        for container in containers or ():
            yield container, pulled.get(container.name, "")


def _find_reference(image: str, image_id: str) -> str | UndecidedError:
    """Return a container's image, at the digest that its node pulled.

    Several names may share one image on a node, which then reports the digest of one of them: a
    digest belongs to the repository that it is reported for.
    """
    try:
        own = Reference.parse(image)
        pulled = image_id.removeprefix(_PULLABLE)
        if not _PINNED.fullmatch(pulled):
            return normalize_reference(image)
        held = Reference.parse(pulled)
    except UndecidedError as error:
        return error
    if own.digest:
        return str(own)
    return str(own.at(held.digest) if held.name == own.name else held)


def _list_resources(container: _Container) -> tuple[str, ...]:
    """Return a container's resources other than processors and memory: `nvidia.com/gpu`."""
    held = container.resources
    if held is None:
        return ()
    tables: tuple[Mapping[str, Any], ...] = (held.limits or {}, held.requests or {})
    return tuple(
        dict.fromkeys(
            name for table in tables for name, amount in table.items() if str(amount) != "0"
        )
    )


def _make_demands(pod: _Pod) -> NodeDemands:
    """Return a pod's demands on its node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    terms = (required and required.node_selector_terms) or ()
    return NodeDemands(
        node=pod.spec.node_name,
        selector=tuple(sorted((pod.spec.node_selector or {}).items())),
        terms=tuple(
            tuple(
                (item.key, item.operator, tuple(item.values or ()))
                for item in term.match_expressions or ()
            )
            for term in terms
        ),
    )
