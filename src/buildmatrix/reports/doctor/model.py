"""Abilities of a machine, as data; formats are pure functions of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.rules.model import IF_KNOWN

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
    #: What it is held against, in words; empty where everything is right.
    bound: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """Result of one check of the catalogue on this machine."""

    id: str
    #: Whose devices it is about; empty for those of all.
    backend: str
    title: str
    state: State
    text: str
    #: What to do; empty where nothing is to be done.
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
    #: Whether the file is gone, or was replaced, since it was mapped.
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLibraries:
    """Libraries of accelerator vendors that a process has mapped."""

    pid: int
    command: str
    libraries: tuple[MappedLibrary, ...]
    #: Nodes of devices that it has mapped.
    devices: tuple[str, ...]
    #: What was not read, and why.
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
