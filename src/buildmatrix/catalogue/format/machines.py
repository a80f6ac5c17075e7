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
    #: Globs of names of devices in sysfs that are this vendor's without being on the PCI bus: parts
    #: that a device is divided into.
    platform_devices: tuple[str, ...] = ()


#: What a check reads: what stands in files, that files of such names are there, or the kernel's
#: log.
Reading = Literal["content", "name", "log"]
#: One value, its growth per second, or the share (percent) of its growth in that of a whole.
Measuring = Literal["once", "second", "share"]


class HostCheck(CatalogueEntry, frozen=True, kw_only=True):
    """A check of a machine: what is read, what is right, and what to do where it is not.

    Each file that a glob of `files` matches is one measure. A check of a vendor's backend counts
    where its devices are.
    """

    id: str
    #: What is measured, for a person.
    title: str
    #: Globs; `{device}` is the folder in sysfs of each device of the backend (of a backend without
    #: a vendor: of every accelerator) on the PCI bus.
    files: tuple[str, ...] = ()
    reads: Reading = "content"
    #: Regular expression whose first group is the value; a file that it does not match says
    #: nothing. In the log a group `device` says which one a line is about.
    pattern: str = r"\A\s*(\S(?:[^\n]*\S)?)\s*\Z"
    over: Measuring = "once"
    #: Of a share: regular expression whose first group has the numbers that make the whole.
    whole: str | None = None
    scale: float = 1
    unit: str = ""
    #: What is right: numbers, globs of values, or how a value relates to those of other files, of
    #: which the least counts. `{folder}` and `{stem}`, the name up to its last `_`, are those of
    #: the file that was read. Nothing of these: whatever is there; of a log, nothing.
    least: float | None = None
    most: float | None = None
    good: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    relation: Literal["equal", "at-least", "at-most", "below"] = "equal"
    #: What values mean.
    meanings: dict[str, str] = {}
    #: What it is where that does not hold, and where none of the files is there.
    state: Literal["low", "partly"] = "partly"
    absent: Literal["none", "ok", "low", "partly"] = "none"
    #: Globs of which each must match something, else the check does not count.
    when: tuple[str, ...] = ()
    #: Whether it counts only where there is an accelerator.
    needs_devices: bool = False
    remedy: str


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
