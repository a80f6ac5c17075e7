"""What a machine says about its devices, read from its files: no vendor's tool is run.

Sources: sysfs (Linux, Documentation/admin-guide/sysfs-rules.rst and ABI/stable/sysfs-module), and
the specification of the container device interface (cncf-tags/container-device-interface, SPEC.md:
`/etc/cdi` and `/var/run/cdi`, files `*.json` and `*.yaml` with a `kind`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from buildmatrix.catalogue.format.machines import Host
from buildmatrix.parsing import natural

#: Bytes of a file that are read, and nodes and files of one pattern that are looked at.
LARGEST = 1 << 20
MOST = 512

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
#: `kind: vendor.com/class` of a CDI specification, in YAML or JSON: a key of the outermost table.
_KIND = re.compile(
    r"""(?mx) ^[ ]{0,4} ["']? kind ["']? [ ]* : [ ]* ["']? ([a-z0-9.-]+/[\w.-]+) | """
    r"""^\{.*? "kind" \s* : \s* "([a-z0-9.-]+/[\w.-]+)" """,
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """The files of a machine, below a folder that stands for its root."""

    root: Path = Path("/")

    def nodes(self, pattern: str) -> tuple[str, ...]:
        """The paths that match a glob of absolute paths, in the order of their numbers."""
        paths = islice(self.root.glob(pattern.lstrip("/")), MOST)
        # Docker makes a folder where a node that it was to hand in is not there.
        nodes = (f"/{path.relative_to(self.root)}" for path in paths if not path.is_dir())
        return tuple(sorted(nodes, key=natural))

    def devices(self, path: str) -> tuple[str, ...]:
        """A node, or the nodes of a folder, as `docker run --device` takes either."""
        return self.nodes(path) or self.nodes(f"{path}/*")

    def text(self, path: str) -> str | None:
        """The content of a file; None where there is none that can be read."""
        try:
            with self._at(path).open("rb") as file:
                return file.read(LARGEST).decode("utf-8", "replace")
        except OSError:
            return None

    def link(self, path: str) -> str | None:
        """The last component of what a link leads to."""
        try:
            return os.fspath(self._at(path).readlink()).rpartition("/")[2]
        except OSError:
            return None

    def has(self, path: str) -> bool:
        """Whether something is there."""
        return self._at(path).exists()

    def may_use(self, path: str) -> bool:
        """Whether this user may read and write a node."""
        return os.access(self._at(path), os.R_OK | os.W_OK)

    def group(self, path: str) -> int | None:
        """Number of the group that a node belongs to."""
        try:
            return self._at(path).stat().st_gid
        except OSError:
            return None

    def kernel(self) -> str:
        """Release of the running kernel; empty where it cannot be read."""
        return (self.text("/proc/sys/kernel/osrelease") or "").strip()

    def name(self) -> str:
        """The machine's own name; empty where it cannot be read."""
        return (self.text("/proc/sys/kernel/hostname") or "").strip()

    def cdi(self) -> Mapping[str, str]:
        """Kind of CDI devices → the file that describes them."""
        files: dict[str, str] = {}
        for folder in CDI_FOLDERS:
            for ending in ("json", "yaml", "yml"):
                for path in self.nodes(f"{folder}/*.{ending}"):
                    match = _KIND.search(self.text(path) or "")
                    if match is not None:
                        files.setdefault(match[1] or match[2], path)
        return files

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was seen of the devices of one backend."""

    backend: str
    #: One node per device, and those that a program needs beside them and that are not there.
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Nodes that this user may not read and write → number of the group that may; None if unknown.
    closed: Mapping[str, int | None] = field(default_factory=dict)
    #: The driver in words, `nvidia 570.86.10`; None where none is loaded.
    driver: str | None = None
    #: Its own version alone, `570.86.10`; a driver that is part of the kernel has none.
    driver_version: str | None = None
    #: Names of the devices, each once.
    products: tuple[str, ...] = ()
    #: Kind of CDI devices → the file that describes them.
    cdi: Mapping[str, str] = field(default_factory=dict)
    #: Runtimes of the Docker daemon for them.
    runtimes: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether there is a sign of such devices."""
        return bool(self.nodes or self.cdi or self.runtimes)


def look(
    machine: MachineFiles, backend: str, host: Host, runtimes: Collection[str]
) -> MachineFacts:
    """What `machine` shows of the devices of a backend.

    `runtimes` are those that its Docker daemon has.
    """
    nodes = tuple(
        node for pattern in host.nodes for node in machine.nodes(pattern)
        if _is_of(machine, node, host)
    )  # fmt: skip
    needed = [(name, machine.nodes(name)) for name in host.needs]
    present = (*nodes, *(node for _, matching in needed for node in matching))
    described = machine.cdi()
    driver, version = _driver(machine, nodes, host)
    return MachineFacts(
        backend=backend,
        nodes=nodes,
        missing=tuple(name for name, matching in needed if not matching),
        closed={node: machine.group(node) for node in present if not machine.may_use(node)},
        driver=driver,
        driver_version=version,
        products=tuple(dict.fromkeys(_products(machine, host))),
        cdi={kind: described[kind] for kind in host.cdi if kind in described},
        runtimes=tuple(name for name in host.runtimes if name in runtimes),
    )


def _is_of(machine: MachineFiles, node: str, host: Host) -> bool:
    """Whether a node is one of this vendor's: others may have nodes of the same name."""
    if host.pci_vendor is None or host.sysfs is None:
        return True
    vendor = machine.text(f"{host.sysfs}/{node.rpartition('/')[2]}/device/vendor") or ""
    return vendor.strip().lower() == host.pci_vendor.lower()


def _driver(
    machine: MachineFiles, nodes: Collection[str], host: Host
) -> tuple[str | None, str | None]:
    """The driver of the nodes, else the first one that is loaded, in words; and its version."""
    name = next(_named(machine, nodes, host), None)
    version = machine.text(f"/sys/module/{name}/version") if name is not None else None
    if version is not None and version.strip():
        return f"{name} {version.split()[0]}", version.split()[0]
    for path in host.version_files:
        match = re.search(host.version, machine.text(path) or "")
        if match is not None:
            return " ".join(filter(None, (name, match[1]))), match[1]
    if name is None:
        return None, None
    kernel = machine.kernel()
    return (f"{name} of Linux {kernel}" if kernel else name), None


def _products(machine: MachineFiles, host: Host) -> Iterator[str]:
    for pattern in host.product_files:
        for path in machine.nodes(pattern):
            match = re.search(host.product, machine.text(path) or "")
            if match is not None:
                yield match[1].strip()


def _named(machine: MachineFiles, nodes: Collection[str], host: Host) -> Iterator[str]:
    for node in nodes if host.sysfs is not None else ():
        name = machine.link(f"{host.sysfs}/{node.rpartition('/')[2]}/device/driver")
        if name is not None:
            yield name
    yield from (name for name in host.modules if machine.has(f"/sys/module/{name}"))
