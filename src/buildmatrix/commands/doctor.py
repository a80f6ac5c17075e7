"""Checks of `doctor`, in order, and those of a live process."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from glob import escape
from pathlib import Path

from msgspec import Struct

from buildmatrix.base.errors import BuildmatrixError, ComponentError, SpecError
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.model import demangle, matches_any, version_of
from buildmatrix.catalogue.tables import Host
from buildmatrix.commands.doctor_node import Node
from buildmatrix.engines.model import Engine, Facilities
from buildmatrix.matrix.model import Spec
from buildmatrix.preflight.machine import (
    MachineFacts,
    MachineFiles,
    collect_facts,
    report_absent,
    report_devices,
    report_disk,
)
from buildmatrix.reports.doctor import (
    Diagnosis,
    DoctorLine,
    HostDevices,
    MappedLibrary,
    NodeCheck,
    Origin,
    ProcessLibraries,
    State,
)

#: A project that any index can be asked for: "not here" is a valid answer, too.
ASKED_FOR = "pip"


def check_engines(
    docker: Engine, oci: Engine, builder: str | None
) -> tuple[list[DoctorLine], Facilities | None]:
    """Check the engines; also return Docker's facilities, or None if it does not respond.

    Docker is missing only if one of its builders is requested: `oci` builds without it.
    """
    own = DoctorLine("ok", "engine", oci.check())
    try:
        line = DoctorLine("ok", "engine", docker.check(builder))
    except BuildmatrixError as error:
        state: State = "none" if builder is None else "missing"
        return [DoctorLine(state, "engine", error.message), own], None
    try:
        return [line, own], docker.facilities()
    except BuildmatrixError:
        # A builder elsewhere does not need the local daemon.
        return [line, own], None


def check_resolver() -> DoctorLine:
    """Check the resolver."""
    from buildmatrix.locks.uv import find_uv

    try:
        return DoctorLine("ok", "resolver", f"uv {find_uv().version}")
    except ComponentError as error:
        return DoctorLine("missing", "resolver", error.message)


def check_catalogue(read: Callable[[], tuple[Path, ...]]) -> tuple[DoctorLine, Catalogue]:
    """Load the catalogue with the user's data files, or without them if they are invalid."""
    lost = ""
    try:
        files = read()
    except SpecError:
        # The specification's own line has the errors.
        files, lost = (), "; files that the specification adds are not known"
    try:
        catalogue = load(files)
    except SpecError as error:
        return DoctorLine("wrong", "catalogue", error.message), load()
    text = f"of {catalogue.date}, backends {', '.join(sorted(catalogue.backends))}{lost}"
    return DoctorLine("ok", "catalogue", text), catalogue


def check_specification(read: Callable[[], Spec | None]) -> tuple[DoctorLine, Spec | None]:
    """Load the specification, if any; it determines the relevant indexes and devices."""
    try:
        spec = read()
    except SpecError as error:
        return DoctorLine("wrong", "specification", error.message), None
    if spec is None:
        return DoctorLine("none", "specification", "none here; `buildmatrix init` writes one"), None
    count = len(spec.targets)
    backends = ", ".join(dict.fromkeys(target.backend for target in spec.targets))
    text = f"{spec.path}, {count} target{'s' if count != 1 else ''} for {backends}"
    return DoctorLine("ok", "specification", text), spec


def check_disks(places: Mapping[str, Path]) -> Iterator[DoctorLine]:
    """Report the free space at `places` (purpose to folder), each disk once."""
    disks: dict[int, tuple[list[str], Path]] = {}
    for purpose, folder in places.items():
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        disks.setdefault(existing.stat().st_dev, ([], existing))[0].append(purpose)
    for words, existing in disks.values():
        usage = shutil.disk_usage(existing)
        yield report_disk(", ".join(words), os.fspath(existing), usage.free, usage.total)


def check_indexes(urls: Collection[str]) -> Iterator[DoctorLine]:
    """Check that the package indexes respond."""
    from buildmatrix.base.text import shown
    from buildmatrix.locks.index.client import Client
    from buildmatrix.net.addresses import Patience

    with Client(patience=Patience(tries=1, connect=5.0, silence=10.0, request=15.0)) as client:
        for url in urls:
            try:
                client.project(url, ASKED_FOR)
            except BuildmatrixError as error:
                yield DoctorLine("unknown", "index", f"{shown(url)}: {shown(error.message)}")
            else:
                yield DoctorLine("ok", "index", f"{shown(url)} answers")


def check_devices(
    machine: MachineFiles,
    catalogue: Catalogue,
    wanted: Collection[str],
    facilities: Facilities | None,
) -> Iterator[DoctorLine]:
    """Report the devices of the backends that are `wanted`, and of others with signs of any."""
    silent = []
    for backend, hosts, seen in _examine_backends(machine, catalogue, facilities):
        if backend in wanted or any(item.anything for item in seen):
            yield report_devices(seen, hosts)
        else:
            silent.append(backend)
    described = {owned.backend for owned in catalogue.hosts}
    for backend in sorted(set(wanted) - described):
        if catalogue.backends[backend].vendor is not None:
            text = (
                "not looked for: the catalogue does not say how to detect its devices; a data "
                "file can do so in [[hosts]]"
            )
            yield DoctorLine("none", f"devices {backend}", text)
    if silent:
        yield report_absent(silent)


def make_diagnosis(
    machine: MachineFiles,
    catalogue: Catalogue,
    facilities: Facilities | None,
    lines: Collection[DoctorLine],
    *,
    checks: Collection[NodeCheck] | None = None,
    process: ProcessLibraries | None = None,
) -> Diagnosis:
    """Return all check results, with the machine's facts for programs."""
    return Diagnosis(
        host=machine.name(),
        kernel=machine.kernel(),
        checks=tuple(lines),
        devices=tuple(
            HostDevices(
                backend=facts.backend,
                nodes=facts.nodes,
                products=facts.products,
                driver=facts.driver_version,
                cdi=tuple(facts.cdi),
                runtimes=facts.runtimes,
            )
            for _, _, seen in _examine_backends(machine, catalogue, facilities)
            for facts in seen
            if facts.anything
        ),
        node=tuple(checks) if checks is not None else None,
        process=process,
    )


def find_node(machine: MachineFiles, catalogue: Catalogue) -> Node:
    """Return the machine for its checks, with the devices that drivers have on the PCI bus."""
    devices: dict[str, list[str]] = {}
    for owned in catalogue.hosts:
        folders = machine.pci_devices(owned.entry.modules)
        if folders or collect_facts(machine, owned.backend, owned.entry, ()).nodes:
            present = devices.setdefault(owned.backend, [])
            present += [folder for folder in folders if folder not in present]
    return Node(machine, catalogue, devices)


def _examine_backends(
    machine: MachineFiles, catalogue: Catalogue, facilities: Facilities | None
) -> Iterator[tuple[str, list[Host], list[MachineFacts]]]:
    """Yield each detectable backend, with the descriptions and facts of its devices."""
    runtimes = facilities.runtimes if facilities is not None else ()
    for backend in sorted({owned.backend for owned in catalogue.hosts}):
        hosts = [owned.entry for owned in catalogue.hosts if owned.backend == backend]
        yield backend, hosts, [collect_facts(machine, backend, host, runtimes) for host in hosts]


# Accelerator libraries of a live process.
#
# Source: proc_pid_maps(5) and proc_pid_mountinfo(5); nothing of the process is run or stopped.
# Paths are in the process's own mount namespace.


#: Bytes read of `maps`; a process may have 65,530 mappings of files with long names.
LARGEST = 32 << 20
#: Characters of RECORD files searched for the owners of libraries; torch's has 2 million.
_RECORDS = 128 << 20
_ESCAPED = re.compile(r"\\([0-7]{3})")
_DELETED = " (deleted)"
_PACKAGES = re.compile(r"(.*/(?:site|dist)-packages)/(.+)")


class _MappedFile(Struct, frozen=True):
    path: str
    deleted: bool


def examine_process(
    pid: int, catalogue: Catalogue, machine: MachineFiles | None = None
) -> ProcessLibraries:
    """Read the mappings of a process; failures are in `unread`."""
    machine = machine or MachineFiles()
    command = (machine.text(f"/proc/{pid}/comm") or "").strip()
    mapped, unread = _read_maps(machine.root / f"proc/{pid}/maps")
    find_origin = _read_mounts(machine, pid)
    owners = _find_owners(
        MachineFiles(machine.root / f"proc/{pid}/root"), {item.path for item in mapped}
    )
    libraries = []
    for item in mapped:
        name = item.path.rpartition("/")[2]
        matches = library(name, item.path.lstrip("/"), catalogue)
        vendor = next((match.owned.vendor for match in matches if match.owned.vendor), None)
        if vendor is None:
            continue
        libraries.append(
            MappedLibrary(
                path=item.path,
                vendor=vendor,
                backends=tuple(dict.fromkeys(match.owned.backend for match in matches)),
                role=matches[0].owned.entry.role,
                version=version_of(name),
                distribution=owners.get(item.path, ""),
                origin=find_origin(item.path),
                deleted=item.deleted,
            )
        )
    nodes = [node for owned in catalogue.hosts for node in (*owned.entry.nodes, *owned.entry.needs)]
    return ProcessLibraries(
        pid=pid,
        command=command,
        libraries=tuple(libraries),
        devices=tuple(item.path for item in mapped if matches_any(nodes, item.path)),
        unread=unread,
    )


def format_process(process: ProcessLibraries) -> Iterator[DoctorLine]:
    """Format the result for people: the process, then each library with all its copies."""
    subject = f"process {process.pid}"
    named = f" ({process.command})" if process.command else ""
    if process.unread:
        yield DoctorLine("unknown", subject, process.unread)
    if not process.libraries and not process.unread:
        yield DoctorLine("none", subject, f"no library of an accelerator is mapped{named}")
    if process.libraries:
        vendors = ", ".join(dict.fromkeys(item.vendor for item in process.libraries))
        count = len(process.libraries)
        text = f"{count} librar{'ies' if count > 1 else 'y'} of {vendors}{named}"
        if process.devices:
            text += f"; devices {' '.join(process.devices)}"
        yield DoctorLine("ok", subject, text)
    copies: dict[str, list[MappedLibrary]] = {}
    for item in process.libraries:
        # Without the version, which copies may differ in.
        stem = demangle(item.path.rpartition("/")[2]).partition(".so")[0]
        copies.setdefault(stem, []).append(item)
    for stem, same in copies.items():
        text = "; ".join(map(_describe, same))
        if len(same) > 1:
            yield DoctorLine(
                "partly", f"library {stem}",
                f"{len(same)} copies: {text}. Which one a symbol comes from depends on the order "
                "of loading: remove one of them, or have both brought by one distribution.",
            )  # fmt: skip
        elif same[0].deleted:
            yield DoctorLine(
                "partly", f"library {stem}",
                f"{text}. The file was removed or replaced since: start the process again.",
            )  # fmt: skip
        else:
            yield DoctorLine("ok", f"library {stem}", text)


_ORIGINS: Mapping[Origin, str] = {
    "machine": "of this machine",
    "image": "of the image",
    "mounted": "mounted into the container",
    "unknown": "whose is not known",
}


def _describe(item: MappedLibrary) -> str:
    parts = [_ORIGINS[item.origin], item.distribution, "deleted" if item.deleted else ""]
    return f"{item.path} ({', '.join(filter(None, parts))})"


def _read_maps(path: Path) -> tuple[list[_MappedFile], str]:
    """Return the mapped files without duplicates, and a text about unreadable ones."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST)
    except FileNotFoundError:
        return [], "there is no such process"
    except PermissionError:
        return [], "its mappings may not be read: run as its user, or as root with CAP_SYS_PTRACE"
    except OSError as error:
        return [], f"its mappings cannot be read: {error.strerror}"
    cut = len(data) == LARGEST
    if not data:
        return [], "it has no memory of its own: it is part of the kernel, or has ended"
    mapped: dict[tuple[str, str], _MappedFile] = {}
    for text in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = text.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        name = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[5])
        deleted = name.endswith(_DELETED)
        # Two files can have the same path, if one has replaced the other.
        mapped.setdefault((name, fields[4]), _MappedFile(name.removesuffix(_DELETED), deleted))
    return list(mapped.values()), f"more than {LARGEST:,} bytes of mappings" if cut else ""


def _read_mounts(machine: MachineFiles, pid: int) -> Callable[[str], Origin]:
    """Read the mount points of a process; return what tells the origin of its files."""
    try:
        proc = machine.root / "proc"
        ours = (proc / f"{pid}/ns/mnt").readlink() == (proc / "self/ns/mnt").readlink()
    except OSError:
        return lambda _: "unknown"
    text = machine.text(f"/proc/{pid}/mountinfo", LARGEST)
    if text is None:
        return lambda _: "machine" if ours else "unknown"
    rows = [row.split(" ") for row in text.splitlines()]
    points = tuple(
        _ESCAPED.sub(lambda match: chr(int(match[1], 8)), row[4]) for row in rows if len(row) > 9
    )
    layered = any(
        row[4] == "/" and "overlay" in row[row.index("-") + 1]
        for row in rows if len(row) > 9 and "-" in row[:-1]
    )  # fmt: skip
    # It sees the files of this machine as we do. In a container of our own, the root is also an
    # image's.
    if ours and not layered:
        return lambda _: "machine"

    def find_origin(path: str) -> Origin:
        within = [at for at in points if path == at or path.startswith(at.rstrip("/") + "/")]
        return "image" if max(within, key=len, default="/") == "/" else "mounted"

    return find_origin


def _find_owners(files: MachineFiles, paths: Collection[str]) -> Mapping[str, str]:
    """Map paths to name and version of their distribution, by the RECORDs beside them."""
    wanted: dict[str, dict[str, str]] = {}
    for path in paths:
        match = _PACKAGES.fullmatch(path)
        if match is not None:
            wanted.setdefault(match[1], {})[match[2]] = path
    owners: dict[str, str] = {}
    left = _RECORDS
    for folder, members in wanted.items():
        for record in files.nodes(f"{escape(folder)}/*.dist-info/RECORD"):
            text = files.text(record, left) or ""
            left -= len(text)
            for row in text.splitlines():
                path = members.get(row.partition(",")[0], "")
                if path:
                    name = record.split("/")[-2].removesuffix(".dist-info")
                    owners.setdefault(path, " ".join(name.rsplit("-", 1)))
    return owners
