"""Checks of `doctor`, in order: engine, resolver, catalogue, disks, indexes, devices."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.tables import Host
from buildmatrix.commands.doctor.checks import report_absent, report_devices, report_disk
from buildmatrix.commands.doctor.machine import MachineFacts, MachineFiles, collect_facts
from buildmatrix.commands.doctor.node import Node
from buildmatrix.engines.model import Engine, Facilities
from buildmatrix.errors import BuildmatrixError, ComponentError, SpecError
from buildmatrix.reports.doctor import (
    Diagnosis,
    DoctorLine,
    HostDevices,
    NodeCheck,
    ProcessLibraries,
    State,
)
from buildmatrix.spec.model import Spec

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
    from buildmatrix.http.failures import Patience
    from buildmatrix.index.client import Client
    from buildmatrix.text import shown

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
