"""What a machine can do, as data; its formats are pure functions of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.reports.json_form import THIS_TOOL, Tool

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
    """What was seen of the devices of one backend."""

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
class Diagnosis:
    """What `doctor` says of one machine."""

    schema: Literal["buildmatrix/doctor/1"] = "buildmatrix/doctor/1"
    tool: Tool = THIS_TOOL
    #: Name of the machine, and the release of its kernel; empty where they cannot be read.
    host: str
    kernel: str
    checks: tuple[DoctorLine, ...]
    #: Backends of whose devices there is a sign.
    devices: tuple[HostDevices, ...]
