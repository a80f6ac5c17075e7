"""Access of an image's container to this machine's devices.

The catalogue's entries for a backend's hosts are matched with this machine, as in `doctor`. Among
the ways to pass devices in, one that also provides the host's libraries comes first: the Container
Device Interface, then Docker's `--gpus`, then a vendor's runtime, then plain nodes. Privileged mode
and access to host memory, which vendors' documents also request, are never granted.
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


def find_access(
    machine: MachineFiles,
    catalogue: Catalogue,
    backend: str,
    facilities: Facilities,
    cdi: Sequence[str] = (),
) -> tuple[DeviceAccess, str]:
    """Return a container's access to the devices of a backend; and why none, if they exist.

    `cdi` are the devices named in a node class. Without devices on this machine, both are empty.
    """
    hosts = _find_hosts(catalogue, backend)
    build = backend_build(catalogue, backend)
    seen = [(host, collect_facts(machine, backend, host, facilities.runtimes)) for host in hosts]
    nodes = [node for host, facts in seen for node in _list_nodes(machine, facts, host.needs)]
    if not hosts:
        # Interfaces of several vendors, such as OpenCL, have no devices of their own.
        nodes = [node for path in _list_device_paths(build) for node in machine.devices(path)]
    if not nodes:
        return NO_DEVICES, ""
    if facilities.folder is None:
        return NO_DEVICES, f"{listing(nodes)} is here, and the engine seems to be elsewhere"
    facts = [facts for _, facts in seen]
    if facilities.has_cdi and (names := tuple(cdi) or _list_cdi_devices(facts, facilities)):
        return DeviceAccess(cdi=names), ""
    if facilities.has_gpus and any(run.options == ("--gpus", "all") for run in build.runs):
        return DeviceAccess(gpus=True), ""
    if runtime := next((name for item in facts for name in item.runtimes), ""):
        variables = {name: value for part in build.final for name, value in part.variables.items()}
        return DeviceAccess(runtime=runtime, environment=variables), ""
    if hosts and not any(_list_device_paths(build)):
        wanted = next((" ".join(run.options) for run in build.runs), "no options are known")
        return NO_DEVICES, (
            f"{listing(nodes)} is here, and containers of this engine would need more than these "
            f"nodes (`docker run`: {wanted})"
        )
    groups = {number for node in nodes if (number := machine.group(node))}
    return DeviceAccess(tuple(dict.fromkeys(nodes)), tuple(sorted(groups))), ""


def find_nodes(machine: MachineFiles, catalogue: Catalogue, backend: str) -> tuple[str, ...] | None:
    """Return device nodes of the backend on this machine; None without known names."""
    hosts = _find_hosts(catalogue, backend)
    if not hosts:
        return None
    return tuple(node for host in hosts for node in collect_facts(machine, backend, host, ()).nodes)


def _find_hosts(catalogue: Catalogue, backend: str) -> list[Host]:
    return [owned.entry for owned in catalogue.hosts if owned.backend == backend]


def _list_nodes(machine: MachineFiles, facts: MachineFacts, needs: Sequence[str]) -> Iterator[str]:
    """Yield the device nodes, and if there are any, the nodes that programs also need."""
    yield from facts.nodes
    if facts.nodes:
        yield from (node for pattern in needs for node in machine.nodes(pattern))


def _list_cdi_devices(seen: Sequence[MachineFacts], facilities: Facilities) -> tuple[str, ...]:
    """Return all devices of the described kinds, by the name `all` if there is one."""
    names = []
    for kind in dict.fromkeys(kind for facts in seen for kind in facts.cdi):
        offered = [name for name in facilities.cdi if name.partition("=")[0] == kind]
        every = f"{kind}=all"
        # Older daemons do not list their devices.
        names += [every] if every in offered or not facilities.cdi else offered
    return tuple(names)


def _list_device_paths(build: BackendBuild) -> Iterator[str]:
    """Yield the `/dev` paths for `docker run`, if the catalogue says that these are enough."""
    for run in build.runs:
        if "--privileged" in run.options or "-v" in run.options:
            continue
        words = [word for option in run.options for word in option.split("=", 1)]
        for option, value in pairwise(words):
            if option == "--device" and value.startswith("/dev/"):
                yield value
