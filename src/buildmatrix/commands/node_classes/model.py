"""Machines as described by a list, before any comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Attributes that determine a machine's class; unknown ones are empty, or 0."""

    backend: str
    #: As spelled by a label or a tool.
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


@dataclass(frozen=True, slots=True)
class Node:
    """One machine by name, with its attributes per backend of its devices."""

    name: str
    machines: tuple[Machine, ...]
    #: All labels; None for a host outside of a cluster.
    labels: Mapping[str, str] | None = None
    #: Its accelerator-like labels and resources that the catalogue does not know.
    unknown: tuple[str, ...] = ()


@dataclass(slots=True)
class SeenNodes:
    """All machines of some files, and unknown labels in them."""

    nodes: list[Node] = field(default_factory=list)
    #: Accelerator-like keys of labels and names of resources that the catalogue does not know, to
    #: the number of nodes with them.
    unknown: dict[str, int] = field(default_factory=dict)
