"""What machines with devices of a backend say of themselves, and what that means."""

from __future__ import annotations

from typing import Literal

from buildmatrix.catalogue.format.entry import CatalogueEntry


class Host(CatalogueEntry, frozen=True):
    """How a machine shows that it has such devices: files that can be read without any tool.

    Nodes are globs of absolute paths, each of whose components a `*` or `?` may stand in.
    """

    #: One node per device.
    nodes: tuple[str, ...]
    #: PCI vendor, as sysfs writes it (`0x1002`), of nodes that other vendors have, too: their
    #: folder in `sysfs` has a file `device/vendor`.
    pci_vendor: str | None = None
    sysfs: str | None = None
    #: Nodes that a program needs beside the one of its device.
    needs: tuple[str, ...] = ()
    #: Kernel modules of the driver; `/sys/module/NAME/version` is the version of one.
    modules: tuple[str, ...] = ()
    #: Further files that contain it, and a regular expression whose first group it is in them.
    version_files: tuple[str, ...] = ()
    version: str = r"(\d+(?:\.\d+)+)"
    #: How containers get at it: kinds of CDI devices, and runtimes of the Docker daemon.
    cdi: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    #: Globs of files in `/proc` and `/sys`, one for each device, and a regular expression whose
    #: first group is the name of the device in them.
    product_files: tuple[str, ...] = ()
    product: str = r"(\S.*)"


class FrameworkDevices(CatalogueEntry, frozen=True):
    """What a framework calls devices of the backend, as the probes of `preflight` have it.

    That is the framework's own word, and where that is the same for several backends, what it was
    built for behind it: `GPU cuda`, `GPU rocm`; of torch `hip` for what it calls `cuda` there.
    """

    #: Module that is imported: `torch`.
    framework: str
    #: Globs of its names for such devices.
    devices: tuple[str, ...]
    #: Modules that bring these devices to it, where it does not look for them itself.
    imports: tuple[str, ...] = ()


class Product(CatalogueEntry, frozen=True):
    """Devices, by the names that their vendor's tools and Kubernetes labels have for them.

    A name also stands for itself with more words behind it (`NVIDIA H100` for `NVIDIA H100 PCIe`),
    and words are told apart by blanks, `-` or `_`.
    """

    names: tuple[str, ...]
    #: What device code for it is called; none where the backend's device code has no such names.
    architectures: tuple[str, ...] = ()
    #: Memory of one device, as its vendor says it: `80GB`.
    memory: str | None = None
    #: Globs of what one device can be divided into: `[1-7]g.*gb*`, `CPX*`.
    partitions: tuple[str, ...] = ()


#: What a label of a node says: a field of its node class; `resource`: only that pods can ask for
#: it; `known`: nothing that a class has; `unknown`: for all keys of a vendor that no other entry
#: knows.
NodeField = Literal[
    "product",
    "arch",
    "driver",
    "memory",
    "count",
    "partition",
    "cpu",
    "resource",
    "known",
    "unknown",
]


class NodeLabel(CatalogueEntry, frozen=True):
    """Labels that discovery services give the nodes of a cluster, or resources that nodes offer.

    Of several entries for one field the first that says something counts.
    """

    #: Globs of keys, of which the most exact one counts.
    names: tuple[str, ...]
    field: NodeField
    #: Regular expression for the whole of `KEY=VALUE`, whose group `value` is what it says.
    #: Default: the value.
    pattern: str | None = None
    #: What the field gets, made of the parts that several labels hold: `sm_{1}{2}`, `{1}MiB`. A
    #: constant says what it means that the label is there.
    form: str | None = None
    #: Which of these parts it holds.
    part: int = 0
