"""What a list of machines says of each, before anybody compares it with anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What makes a machine one of a class; what is not said of it is empty, or 0."""

    backend: str
    #: As a label or a tool spells them.
    products: tuple[str, ...] = ()
    #: What labels say; the catalogue knows those of the products.
    archs: tuple[str, ...] = ()
    driver: str = ""
    #: Memory of one device, as a size of a specification: `81559MiB`.
    memory: str = ""
    count: int = 0
    #: Each once: a device may be divided into several sizes.
    partitions: tuple[str, ...] = ()
    kernel: str = ""
    container_runtime: str = ""
    cpu: str = ""
    resources: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    #: The labels that say what the devices are, in their order.
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine by its name; of each backend that it has devices of, what makes it a class."""

    name: str
    machines: tuple[Machine, ...]
    #: All labels; None for a host that is no node of a cluster.
    labels: Mapping[str, str] | None = None
    #: Its labels and resources that look like an accelerator's and that the catalogue does not
    #: know.
    unknown: tuple[str, ...] = ()


@dataclass(slots=True)
class Seen:
    """All machines of some files, and what in these was not understood."""

    nodes: list[Node] = field(default_factory=list)
    #: Keys of labels and names of resources that look like an accelerator's and that the
    #: catalogue does not know → nodes that have them.
    unknown: dict[str, int] = field(default_factory=dict)
