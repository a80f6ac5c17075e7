"""Report lines about a machine, with remedies, from its facts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from buildmatrix.catalogue.tables import Host
from buildmatrix.commands.doctor.machine import MachineFacts
from buildmatrix.phrases import count, listing
from buildmatrix.reports.doctor import DoctorLine

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
    parts = [_describe_count(best.nodes)] if best.nodes else []
    parts.append(f"driver {best.driver}" if best.driver else "driver not seen")
    parts.append(_describe_access(best, host))
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


def _describe_count(nodes: Sequence[str]) -> str:
    return f"{count(len(nodes), 'device')} ({listing(nodes, _SHOWN, ' ')})"


def report_absent(backends: Collection[str]) -> DoctorLine:
    """Report backends that were not asked for and have no devices here."""
    return DoctorLine("none", "devices", f"of {', '.join(sorted(backends))}: none here")


def report_disk(purpose: str, place: str, free: int, total: int) -> DoctorLine:
    """Report the free space of a disk."""
    text = f"{place} has {free / 1e9:.1f} GB free of {total / 1e9:.1f} GB ({purpose})"
    if free < LOW_DISK_SPACE:
        return DoctorLine("low", "disk", f"{text}; a build may need {LOW_DISK_SPACE / 1e9:.0f} GB")
    return DoctorLine("ok", "disk", text)
