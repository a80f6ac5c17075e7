"""The report of `doctor`: devices and drivers of a machine, as data, text and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.base.text import printable
from buildmatrix.judge.model import IF_KNOWN
from buildmatrix.reports.json_form import THIS_TOOL, Tool

# Data


#: `ok`; `none`: not here, and nothing that stops a run; `low`: there, but scarce; `partly`: there,
#: but not usable as it is; `missing`: a run needs it; `wrong`: the user wrote something that cannot
#: be; `unknown`: could not be found out.
State = Literal["ok", "none", "low", "partly", "missing", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class DoctorLine:
    """One thing that was checked."""

    state: State
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices of one backend that were seen."""

    backend: str
    #: One node per device: `/dev/nvidia0`.
    nodes: tuple[str, ...]
    #: Names of the devices, each once, as the machine's files have them.
    products: tuple[str, ...]
    #: Version of the driver; None where none is loaded, or it has none but the kernel's.
    driver: str | None
    #: Kinds of CDI devices, and runtimes of the Docker daemon for them.
    cdi: tuple[str, ...]
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One thing that a check measured."""

    #: The file, or the device that a line of the kernel's log is about.
    place: str
    value: str
    #: The value as a number; None where it is none, and for `unlimited`.
    number: float | None
    #: Expectation in words; empty if everything is right.
    bound: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """Result of one check of the catalogue on this machine."""

    id: str
    #: Backend of the devices; empty for all.
    backend: str
    title: str
    state: State
    text: str
    #: Remedy; empty if none is needed.
    remedy: str
    unit: str
    #: Where it is written down what is right, and when that was last looked at.
    sources: tuple[str, ...]
    checked: str
    measures: tuple[Measure, ...]


#: Whose a mapped file is: this machine's, where the process sees the same files as we; else its
#: image's, or one that was mounted into it. `unknown` where that cannot be read.
Origin = Literal["machine", "image", "mounted", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedLibrary:
    """A library of a vendor that a process has mapped."""

    path: str
    vendor: str
    backends: tuple[str, ...]
    role: str
    #: The version in its name, and the distribution that installed it; empty where not known.
    version: str
    distribution: str
    origin: Origin
    #: True if the file is gone, or was replaced, since it was mapped.
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLibraries:
    """Libraries of accelerator vendors that a process has mapped."""

    pid: int
    command: str
    libraries: tuple[MappedLibrary, ...]
    #: Nodes of devices that it has mapped.
    devices: tuple[str, ...]
    #: Unread parts, with reasons.
    unread: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything `doctor` reports about one machine."""

    schema: Literal["buildmatrix/doctor/1"] = "buildmatrix/doctor/1"
    tool: Tool = THIS_TOOL
    #: Name of the machine, and the release of its kernel; empty where they cannot be read.
    host: str
    kernel: str
    checks: tuple[DoctorLine, ...]
    #: Backends of whose devices there is a sign.
    devices: tuple[HostDevices, ...]
    #: What the checks of the catalogue say, and the process that was asked about.
    node: tuple[NodeCheck, ...] | None = field(default=None, metadata=IF_KNOWN)
    process: ProcessLibraries | None = field(default=None, metadata=IF_KNOWN)


# Text: a line for each check


def line(checked: DoctorLine) -> str:
    """One line; `doctor` prints each when it is known."""
    return printable(f"{checked.state:8} {checked.subject}: {checked.text}")


def render_table(diagnosis: Diagnosis) -> str:
    """All lines, in their order."""
    return "".join(f"{line(checked)}\n" for checked in diagnosis.checks)


# Prometheus' text format; docs/contract.md lists the names, which are stable.
#
# Source: Prometheus documentation, "Exposition formats", text format 0.0.4.


_Sample = tuple[Mapping[str, str], float]


def render_metrics(diagnosis: Diagnosis) -> str:
    """Render all metrics; samples with equal labels are counted."""
    checks = diagnosis.node or ()
    # Of each backend the first entry: a catalogue may describe one in several ways.
    devices = {item.backend: item for item in reversed(diagnosis.devices)}
    lines = Counter((line.subject, line.state) for line in diagnosis.checks)
    parts = [
        _family(
            "info", "Checked machine, and version of buildmatrix.",
            [({"host": diagnosis.host, "kernel": diagnosis.kernel,
               "version": diagnosis.tool.version}, 1)],
        ),
        _family(
            "lines", "Lines of `doctor`'s table, by subject and state.",
            [({"subject": subject, "state": state}, n) for (subject, state), n in lines.items()],
        ),
        _family(
            "devices", "Device nodes, by backend.",
            [({"backend": item.backend}, len(item.nodes)) for item in devices.values()],
        ),
        _family(
            "check", "1 for the current state of a check.",
            [({"check": check.id, "backend": check.backend, "state": check.state}, 1)
             for check in checks],
        ),
        _family(
            "measure", "Measured value of a check, in its unit.",
            _once(({"check": check.id, "place": item.place, "unit": check.unit}, item.number)
                  for check in checks for item in check.measures
                  if item.number is not None),
        ),
        _family(
            "violations", "Measured values out of bounds, by check.",
            [({"check": check.id, "backend": check.backend},
              sum(not item.holds for item in check.measures)) for check in checks],
        ),
    ]  # fmt: skip
    if (process := diagnosis.process) is not None:
        libraries = Counter(
            (item.vendor, item.origin, str(item.deleted).lower()) for item in process.libraries
        )
        parts.append(
            _family(
                "process_libraries", "Vendor libraries mapped by the process.",
                [({"pid": str(process.pid), "vendor": vendor, "origin": origin,
                   "deleted": deleted}, n)
                 for (vendor, origin, deleted), n in libraries.items()],
            )
        )  # fmt: skip
    return "".join(parts)


def _once(samples: Iterable[_Sample]) -> list[_Sample]:
    """Return the first of samples with equal labels: a file may contain two."""
    first: dict[tuple[tuple[str, str], ...], _Sample] = {}
    for labels, value in samples:
        first.setdefault(tuple(labels.items()), (labels, value))
    return list(first.values())


def _family(name: str, text: str, samples: Iterable[_Sample]) -> str:
    name = f"buildmatrix_doctor_{name}"
    rows = []
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(content)}"' for key, content in labels.items())
        number = int(value) if value == int(value) else value
        rows.append(f"{name}{{{inner}}} {number}\n")
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n{''.join(rows)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
