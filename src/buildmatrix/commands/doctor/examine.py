"""All that `doctor` looks at, in order: engine, resolver, catalogue, disks, indexes, devices."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from buildmatrix.catalogue.format.machines import Host
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.doctor.checks import absent, devices, disk
from buildmatrix.commands.doctor.machine import MachineFacts, MachineFiles, look
from buildmatrix.commands.doctor.node import Node
from buildmatrix.engines.model import Engine, Facilities
from buildmatrix.errors import BuildmatrixError, ComponentError, SpecError
from buildmatrix.reports.doctor.model import (
    Diagnosis,
    DoctorLine,
    HostDevices,
    NodeCheck,
    ProcessLibraries,
    State,
)
from buildmatrix.spec.model import Spec

#: A project that every index may be asked for: the answer "not here" is an answer, too.
ASKED_FOR = "pip"


def engine_lines(
    docker: Engine, oci: Engine, builder: str | None
) -> tuple[list[DoctorLine], Facilities | None]:
    """The engines, and what Docker says of its machine; None where it cannot be asked.

    Docker is missing only where a builder of it is asked for: `oci` builds without it.
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
        # A builder elsewhere does without the daemon here.
        return [line, own], None


def resolver_line() -> DoctorLine:
    """The resolver."""
    from buildmatrix.locks.uv import find_uv

    try:
        return DoctorLine("ok", "resolver", f"uv {find_uv().version}")
    except ComponentError as error:
        return DoctorLine("missing", "resolver", error.message)


def catalogue_line(read: Callable[[], tuple[Path, ...]]) -> tuple[DoctorLine, Catalogue]:
    """The catalogue with the user's data files; where one of these is wrong, without them."""
    lost = ""
    try:
        files = read()
    except SpecError:
        # What is wrong is said of the specification.
        files, lost = (), "; files that the specification adds are not known"
    try:
        catalogue = load(files)
    except SpecError as error:
        return DoctorLine("wrong", "catalogue", error.message), load()
    text = f"of {catalogue.date}, backends {', '.join(sorted(catalogue.backends))}{lost}"
    return DoctorLine("ok", "catalogue", text), catalogue


def specification_line(read: Callable[[], Spec | None]) -> tuple[DoctorLine, Spec | None]:
    """The specification, where there is one; it says which indexes and devices matter."""
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


def disk_lines(places: Mapping[str, Path]) -> Iterator[DoctorLine]:
    """The room at `places`, what is written there → folder; of one disk once."""
    disks: dict[int, tuple[list[str], Path]] = {}
    for purpose, folder in places.items():
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        disks.setdefault(existing.stat().st_dev, ([], existing))[0].append(purpose)
    for words, existing in disks.values():
        usage = shutil.disk_usage(existing)
        yield disk(", ".join(words), os.fspath(existing), usage.free, usage.total)


def index_lines(urls: Collection[str]) -> Iterator[DoctorLine]:
    """Whether the package indexes answer."""
    from buildmatrix.http.patience import Patience
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


def device_lines(
    machine: MachineFiles,
    catalogue: Catalogue,
    wanted: Collection[str],
    facilities: Facilities | None,
) -> Iterator[DoctorLine]:
    """The devices of the backends that are `wanted`, and of those of which there is a sign."""
    silent = []
    for backend, hosts, seen in _seen(machine, catalogue, facilities):
        if backend in wanted or any(item.anything for item in seen):
            yield devices(seen, hosts)
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
        yield absent(silent)


def diagnosis(
    machine: MachineFiles,
    catalogue: Catalogue,
    facilities: Facilities | None,
    lines: Collection[DoctorLine],
    *,
    checks: Collection[NodeCheck] | None = None,
    process: ProcessLibraries | None = None,
) -> Diagnosis:
    """All that was checked, with what programs want to know of the machine."""
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
            for _, _, seen in _seen(machine, catalogue, facilities)
            for facts in seen
            if facts.anything
        ),
        node=tuple(checks) if checks is not None else None,
        process=process,
    )


def node(machine: MachineFiles, catalogue: Catalogue) -> Node:
    """The machine as its checks see it, with the devices that drivers have on the PCI bus."""
    devices: dict[str, list[str]] = {}
    for owned in catalogue.hosts:
        folders = machine.pci_devices(owned.entry.modules)
        if folders or look(machine, owned.backend, owned.entry, ()).nodes:
            present = devices.setdefault(owned.backend, [])
            present += [folder for folder in folders if folder not in present]
    return Node(machine, catalogue, devices)


def _seen(
    machine: MachineFiles, catalogue: Catalogue, facilities: Facilities | None
) -> Iterator[tuple[str, list[Host], list[MachineFacts]]]:
    """Each backend whose devices can be seen, how these show themselves, and what was seen."""
    runtimes = facilities.runtimes if facilities is not None else ()
    for backend in sorted({owned.backend for owned in catalogue.hosts}):
        hosts = [owned.entry for owned in catalogue.hosts if owned.backend == backend]
        yield backend, hosts, [look(machine, backend, host, runtimes) for host in hosts]
