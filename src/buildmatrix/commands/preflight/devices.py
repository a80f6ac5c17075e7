"""Which devices of this machine a container of an image gets, and how.

What the catalogue says of a backend's hosts is held against this machine, as `doctor` does it. Of
the ways to hand devices in, the one that also brings the libraries of the host comes first: the
Container Device Interface, then Docker's `--gpus`, then a vendor's runtime, then bare nodes. What
the vendors' documents also ask for, to be privileged or to see the host's memory, is never given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from buildmatrix.catalogue.building import BackendBuild, backend_build
from buildmatrix.catalogue.format.machines import Host
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.doctor.machine import MachineFacts, MachineFiles, collect_facts
from buildmatrix.engines.model import NO_DEVICES, DeviceAccess, Facilities
from buildmatrix.phrases import listing


def access(
    machine: MachineFiles,
    catalogue: Catalogue,
    backend: str,
    facilities: Facilities,
    cdi: Sequence[str] = (),
) -> tuple[DeviceAccess, str]:
    """What a container gets of the devices of a backend; and why nothing, where they are here.

    `cdi`: the devices that a node class names. Without devices on this machine both are empty.
    """
    hosts = _hosts(catalogue, backend)
    build = backend_build(catalogue, backend)
    seen = [(host, collect_facts(machine, backend, host, facilities.runtimes)) for host in hosts]
    nodes = [node for host, facts in seen for node in _nodes(machine, facts, host.needs)]
    if not hosts:
        # Interfaces of several vendors, as OpenCL, have no devices of their own.
        nodes = [node for path in _paths(build) for node in machine.devices(path)]
    if not nodes:
        return NO_DEVICES, ""
    if facilities.folder is None:
        return NO_DEVICES, f"{listing(nodes)} is here, and the engine seems to be elsewhere"
    facts = [facts for _, facts in seen]
    if facilities.has_cdi and (names := tuple(cdi) or _cdi(facts, facilities)):
        return DeviceAccess(cdi=names), ""
    if facilities.has_gpus and any(run.options == ("--gpus", "all") for run in build.runs):
        return DeviceAccess(gpus=True), ""
    if runtime := next((name for item in facts for name in item.runtimes), ""):
        variables = {name: value for part in build.final for name, value in part.variables.items()}
        return DeviceAccess(runtime=runtime, environment=variables), ""
    if hosts and not any(_paths(build)):
        wanted = next((" ".join(run.options) for run in build.runs), "no options are known")
        return NO_DEVICES, (
            f"{listing(nodes)} is here, and containers of this engine would need more than these "
            f"nodes (`docker run`: {wanted})"
        )
    groups = {number for node in nodes if (number := machine.group(node))}
    return DeviceAccess(tuple(dict.fromkeys(nodes)), tuple(sorted(groups))), ""


def nodes_here(machine: MachineFiles, catalogue: Catalogue, backend: str) -> tuple[str, ...] | None:
    """Nodes of the backend's devices on this machine; None where they have no known names."""
    hosts = _hosts(catalogue, backend)
    if not hosts:
        return None
    return tuple(node for host in hosts for node in collect_facts(machine, backend, host, ()).nodes)


def _hosts(catalogue: Catalogue, backend: str) -> list[Host]:
    return [owned.entry for owned in catalogue.hosts if owned.backend == backend]


def _nodes(machine: MachineFiles, facts: MachineFacts, needs: Sequence[str]) -> Iterator[str]:
    """Nodes of the devices, and where there are any those that a program needs beside them."""
    yield from facts.nodes
    if facts.nodes:
        yield from (node for pattern in needs for node in machine.nodes(pattern))


def _cdi(seen: Sequence[MachineFacts], facilities: Facilities) -> tuple[str, ...]:
    """All devices of the kinds that are described: by the name `all`, where there is one."""
    names = []
    for kind in dict.fromkeys(kind for facts in seen for kind in facts.cdi):
        offered = [name for name in facilities.cdi if name.partition("=")[0] == kind]
        every = f"{kind}=all"
        # Older daemons do not say what they have.
        names += [every] if every in offered or not facilities.cdi else offered
    return tuple(names)


def _paths(build: BackendBuild) -> Iterator[str]:
    """What `docker run` gets of `/dev`, where the catalogue says that this alone is enough."""
    for run in build.runs:
        if "--privileged" in run.options or "-v" in run.options:
            continue
        words = [word for option in run.options for word in option.split("=", 1)]
        for option, value in pairwise(words):
            if option == "--device" and value.startswith("/dev/"):
                yield value
