"""Facts about a machine's devices, and report lines with remedies.

Sources: sysfs (Linux, Documentation/admin-guide/sysfs-rules.rst and ABI/stable/sysfs-module), and
the specification of the container device interface (cncf-tags/container-device-interface, SPEC.md:
`/etc/cdi` and `/var/run/cdi`, files `*.json` and `*.yaml` with a `kind`).
"""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.parsing import natural
from buildmatrix.base.text import count, listing
from buildmatrix.catalogue.model import matches_any
from buildmatrix.catalogue.tables import Host
from buildmatrix.reports.doctor import DoctorLine

#: Bytes read of a file, and nodes and files examined per pattern.
LARGEST = 1 << 20
MOST = 4096

#: Bytes of the kernel's log that are read, and seconds spent on that; its buffer is smaller.
LOG_BYTES = 16 << 20
LOG_SECONDS = 2.0
#: Paths of the kernel's log, of which the first readable one is used: the buffer since boot, and
#: the files of a log daemon.
LOGS = ("/dev/kmsg", "/var/log/kern.log", "/var/log/messages")
#: Bytes of one record of /dev/kmsg, which is read as a whole or not at all.
_RECORD = 1 << 16
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
#: `kind: vendor.com/class` of a CDI specification, in YAML or JSON: a key of the outermost table.
_KIND = re.compile(
    r"""(?mx) ^[ ]{0,4} ["']? kind ["']? [ ]* : [ ]* ["']? ([a-z0-9.-]+/[\w.-]+) | """
    r"""^\{.*? "kind" \s* : \s* "([a-z0-9.-]+/[\w.-]+)" """,
    re.IGNORECASE,
)


class KernelLog(Struct, frozen=True):
    """The readable part of the kernel's log."""

    text: str = ""
    #: File that was read; empty if none is readable.
    path: str = ""
    #: Unread files, or the rest of the log, with reasons.
    unread: str = ""


class MachineFiles(Struct, frozen=True):
    """The files of a machine, below a folder that stands for its root."""

    root: Path = Path("/")

    def nodes(self, pattern: str) -> tuple[str, ...]:
        """Return the paths that match a glob of absolute paths, in natural order."""
        # Docker creates a folder in place of a missing node that it was to pass in.
        return tuple(path for path in self._matching(pattern) if not self._at(path).is_dir())

    def devices(self, path: str) -> tuple[str, ...]:
        """Return a node, or the nodes of a folder, as `docker run --device` accepts either."""
        return self.nodes(path) or self.nodes(f"{path}/*")

    def matching(self, pattern: str) -> bool:
        """True if anything matches a glob."""
        return bool(self._matching(pattern))

    def pci_devices(self, modules: Collection[str]) -> tuple[str, ...]:
        """Return the sysfs folders of PCI devices with drivers of these kernel modules."""
        addresses = dict.fromkeys(
            address
            for module in modules
            for folder in (f"/sys/module/{module}/drivers/pci:*", f"/sys/bus/pci/drivers/{module}")
            for path in self._matching(f"{folder}/*:*:*.*")
            if _ADDRESS.fullmatch(address := path.rpartition("/")[2])
        )
        return tuple(f"/sys/bus/pci/devices/{address}" for address in addresses)

    def _matching(self, pattern: str) -> list[str]:
        # `Path.glob` treats unreadable folders differently between Python versions.
        paths = glob.iglob(pattern.lstrip("/"), root_dir=self.root)  # noqa: PTH207
        return sorted((f"/{path}" for path in islice(paths, MOST)), key=natural)

    def text(self, path: str, most: int = LARGEST) -> str | None:
        """Return the content of a file; None if it is missing or unreadable.

        Anything but a regular file (a pipe, a device) counts as unreadable: reading it may never
        end.
        """
        try:
            descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                return file.read(most).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def kernel_log(self) -> KernelLog:
        """Read the kernel's log, as far as this user may."""
        closed = []
        for path in LOGS:
            try:
                text, whole = self._log(path)
            except OSError as error:
                closed.append(f"{path}: {error.strerror or 'not readable'}")
            else:
                return KernelLog(text, path, "" if whole else f"only a part of {path} was read")
        return KernelLog(unread="; ".join(closed))

    def _log(self, path: str) -> tuple[str, bool]:
        """Return the text of a log, and True if it is complete; of a file, its end is read."""
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size > LOG_BYTES:
                os.lseek(descriptor, -LOG_BYTES, os.SEEK_END)
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISCHR(status.st_mode)):
                raise OSError(0, "no log")
            pieces: list[bytes] = []
            size, until = 0, time.monotonic() + LOG_SECONDS
            while size < LOG_BYTES and time.monotonic() < until:
                try:
                    piece = os.read(descriptor, _RECORD)
                except BrokenPipeError:
                    # Records were overwritten during the read.
                    continue
                except BlockingIOError:
                    piece = b""
                if not piece:
                    return b"".join(pieces).decode("utf-8", "replace"), status.st_size <= LOG_BYTES
                pieces.append(piece)
                size += len(piece)
            return b"".join(pieces).decode("utf-8", "replace"), False
        finally:
            os.close(descriptor)

    def link(self, path: str) -> str | None:
        """Return the last component of a link's target."""
        try:
            return os.fspath(self._at(path).readlink()).rpartition("/")[2]
        except OSError:
            return None

    def has(self, path: str) -> bool:
        """True if the path exists."""
        return self._at(path).exists()

    def may_use(self, path: str) -> bool:
        """True if this user may read and write a node."""
        return os.access(self._at(path), os.R_OK | os.W_OK)

    def group(self, path: str) -> int | None:
        """Return the group number of a node."""
        try:
            return self._at(path).stat().st_gid
        except OSError:
            return None

    def kernel(self) -> str:
        """Return the release of the running kernel; empty if unreadable."""
        return (self.text("/proc/sys/kernel/osrelease") or "").strip()

    def name(self) -> str:
        """Return the machine's host name; empty if unreadable."""
        return (self.text("/proc/sys/kernel/hostname") or "").strip()

    def cdi(self) -> Mapping[str, str]:
        """Map kinds of CDI devices to the files that describe them."""
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


class MachineFacts(Struct, frozen=True):
    """Facts about the devices of one backend."""

    backend: str
    #: One node per device, and missing nodes that programs also need.
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Nodes that this user may not read and write, with the number of their group, if known.
    closed: Mapping[str, int | None] = field(default_factory=dict)
    #: Driver name and version, `nvidia 570.86.10`; None if none is loaded.
    driver: str | None = None
    #: Its version alone, `570.86.10`; a driver that is part of the kernel has none.
    driver_version: str | None = None
    #: Names of the devices, without duplicates.
    products: tuple[str, ...] = ()
    #: Kinds of CDI devices to the files that describe them.
    cdi: Mapping[str, str] = field(default_factory=dict)
    #: Runtimes of the Docker daemon for these devices.
    runtimes: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """True if there is a sign of such devices."""
        return bool(self.nodes or self.cdi or self.runtimes)


def collect_facts(
    machine: MachineFiles, backend: str, host: Host, runtimes: Collection[str]
) -> MachineFacts:
    """Collect the facts about a backend's devices on `machine`.

    `runtimes` are those of its Docker daemon.
    """
    nodes = tuple(
        node for pattern in host.nodes for node in machine.nodes(pattern)
        if _is_vendors_node(machine, node, host)
    )  # fmt: skip
    needed = [(name, machine.nodes(name)) for name in host.needs]
    present = (*nodes, *(node for _, matching in needed for node in matching))
    described = machine.cdi()
    driver, version = _find_driver(machine, nodes, host)
    products = (
        re.search(host.product, machine.text(path) or "")
        for pattern in host.product_files
        for path in machine.nodes(pattern)
    )
    return MachineFacts(
        backend=backend,
        nodes=nodes,
        missing=tuple(name for name, matching in needed if not matching),
        closed={node: machine.group(node) for node in present if not machine.may_use(node)},
        driver=driver,
        driver_version=version,
        products=tuple(dict.fromkeys(match[1].strip() for match in products if match)),
        cdi={kind: described[kind] for kind in host.cdi if kind in described},
        runtimes=tuple(name for name in host.runtimes if name in runtimes),
    )


def _is_vendors_node(machine: MachineFiles, node: str, host: Host) -> bool:
    """True if a node is one of this vendor's: others may have nodes of the same name."""
    if host.pci_vendor is None or host.sysfs is None:
        return True
    vendor = machine.text(f"{host.sysfs}/{node.rpartition('/')[2]}/device/vendor") or ""
    if vendor.strip().lower() == host.pci_vendor.lower():
        return True
    name = machine.link(f"{host.sysfs}/{node.rpartition('/')[2]}/device")
    return name is not None and matches_any(host.platform_devices, name)


def _find_driver(
    machine: MachineFiles, nodes: Collection[str], host: Host
) -> tuple[str | None, str | None]:
    """Return the driver of the nodes, else the first one loaded, as text; and its version."""
    name = next(_find_driver_names(machine, nodes, host), None)
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


def _find_driver_names(machine: MachineFiles, nodes: Collection[str], host: Host) -> Iterator[str]:
    for node in nodes if host.sysfs is not None else ():
        name = machine.link(f"{host.sysfs}/{node.rpartition('/')[2]}/device/driver")
        if name is not None:
            yield name
    yield from (name for name in host.modules if machine.has(f"/sys/module/{name}"))


# Report lines with remedies


#: Free disk space below which a build of an accelerator's image is likely to fail: the build and
#: the final stage of one CUDA image, and the download cache.
LOW_DISK_SPACE = 20_000_000_000
#: Names in one line.
_SHOWN = 8


def report_devices(seen: Sequence[MachineFacts], hosts: Sequence[Host]) -> DoctorLine:
    """Report one backend's devices; a catalogue may have several descriptions of it, in order."""
    best = next((item for item in seen if item.anything), seen[0])
    host = hosts[seen.index(best)]
    subject = f"devices {best.backend}"
    troubles = list(_find_problems(best, host))
    if not best.nodes and not troubles:
        looked = " ".join(pattern for item in hosts for pattern in item.nodes)
        origin = f" of PCI vendor {host.pci_vendor}" if host.pci_vendor else ""
        return DoctorLine("none", subject, f"none here (no {looked}{origin}); building needs none")
    number = count(len(best.nodes), "device")
    parts = (
        f"{number} ({listing(best.nodes, _SHOWN, ' ')})" if best.nodes else "",
        f"driver {best.driver}" if best.driver else "driver not seen",
        _describe_access(best, host),
    )
    text = "; ".join(filter(None, parts))
    if troubles:
        return DoctorLine("partly", subject, f"{text}. {' '.join(troubles)}")
    return DoctorLine("ok", subject, text)


def _find_problems(seen: MachineFacts, host: Host) -> Iterator[str]:
    wanted = " ".join(host.nodes)
    if not seen.nodes:
        if seen.driver is not None and host.pci_vendor is None:
            yield (
                f"The driver is loaded, and there is no {wanted}: it makes them when a device is "
                "found; in a container they have to be passed in."
            )
        for kind, file in seen.cdi.items():
            yield (
                f"{file} offers {kind} to containers, and there is no {wanted}: generate it again."
            )
        return
    if seen.missing:
        nodes = listing(seen.missing, _SHOWN, " ")
        yield f"{nodes} missing: programs cannot open a device without it."
    if seen.closed:
        nodes = listing(seen.closed, _SHOWN, " ")
        groups = sorted({number for number in seen.closed.values() if number is not None})
        numbers = " ".join(map(str, groups))
        yield (
            f"This user may not open {nodes}: add the user to the group "
            f"{numbers}, and start containers with --group-add {numbers}."
        )


def _describe_access(seen: MachineFacts, host: Host) -> str:
    ways = [f"CDI {kind} ({file})" for kind, file in seen.cdi.items()]
    ways += [f"Docker runtime {name}" for name in seen.runtimes]
    if ways:
        return f"for containers: {', '.join(ways)}"
    wanted = [
        *(f"CDI {kind}" for kind in host.cdi),
        *(f"Docker runtime {n}" for n in host.runtimes),
    ]
    return f"nothing makes them available to containers ({', '.join(wanted)})" if wanted else ""


def report_absent(backends: Collection[str]) -> DoctorLine:
    """Report backends that were not asked for and have no devices here."""
    return DoctorLine("none", "devices", f"of {', '.join(sorted(backends))}: none here")


def report_disk(purpose: str, place: str, free: int, total: int) -> DoctorLine:
    """Report the free space of a disk."""
    text = f"{place} has {free / 1e9:.1f} GB free of {total / 1e9:.1f} GB ({purpose})"
    if free < LOW_DISK_SPACE:
        return DoctorLine("low", "disk", f"{text}; a build may need {LOW_DISK_SPACE / 1e9:.0f} GB")
    return DoctorLine("ok", "disk", text)
