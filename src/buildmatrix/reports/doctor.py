"""The report of `doctor`: devices and drivers of a machine, as data, text and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from msgspec import Struct

from buildmatrix.base.text import count, listing, printable
from buildmatrix.judge.model import IF_KNOWN
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Data


#: `ok`; `none`: not here, and nothing that stops a run; `low`: there, but scarce; `partly`: there,
#: but not usable as it is; `missing`: a run needs it; `wrong`: the user wrote something that cannot
#: be; `unknown`: could not be found out.
State = Literal["ok", "none", "low", "partly", "missing", "wrong", "unknown"]


class DoctorLine(Struct, frozen=True):
    """One thing that was checked."""

    state: State
    subject: str
    text: str


class HostDevices(Struct, frozen=True, kw_only=True):
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


class Measure(Struct, frozen=True, kw_only=True):
    """One thing that a check measured."""

    #: The file, or the device that a line of the kernel's log is about.
    place: str
    value: str
    #: The value as a number; None where it is none, and for `unlimited`.
    number: float | None
    #: Expectation in words; empty if everything is right.
    bound: str
    holds: bool


class NodeCheck(Struct, frozen=True, kw_only=True):
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


class MappedLibrary(Struct, frozen=True, kw_only=True):
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


class ProcessLibraries(Struct, frozen=True, kw_only=True):
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


# Data


#: `undecided`: a machine does not say what its class says of it. `no-nodes`: none is of the class.
CheckState = Literal["ok", "drift", "undecided"]
ClassState = Literal["ok", "drift", "undecided", "no-nodes"]


class NodeDifference(Struct, frozen=True):
    """A field in which machines differ from their class."""

    state: Literal["drift", "undecided"]
    #: Name in the specification: `driver`, `container-runtime`, `labels.KEY`.
    field: str
    #: As the class has it, and as the machines say it; empty where they do not.
    expected: str
    seen: str
    nodes: tuple[str, ...]


class ClassCheck(Struct, frozen=True, kw_only=True):
    """One class, and the machines that are of it."""

    name: str
    backend: str
    #: Where it is written: file and line.
    place: str
    state: ClassState
    #: How many there are.
    nodes: int
    differences: tuple[NodeDifference, ...] = ()
    #: Fields of the class that nothing in the files says of these machines.
    not_compared: tuple[str, ...] = ()


class Uncovered(Struct, frozen=True, kw_only=True):
    """Machines with devices that are of no class."""

    backend: str
    #: True if the specification has this backend; other teams may have the others.
    in_specification: bool
    products: tuple[str, ...]
    resources: tuple[str, ...]
    nodes: tuple[str, ...]


class NodeClassCheck(Struct, frozen=True, kw_only=True):
    """Result of `node-classes check`."""

    schema: Literal["buildmatrix/node-classes/1"] = "buildmatrix/node-classes/1"
    tool: Tool = THIS_TOOL
    specification: str
    #: The files that list the machines.
    sources: tuple[str, ...]
    state: CheckState
    #: How many machines were listed.
    nodes: int
    classes: tuple[ClassCheck, ...]
    uncovered: tuple[Uncovered, ...] = ()
    #: Labels and resources that look like an accelerator's, and of which nothing is known → how
    #: many machines have them.
    unknown: Mapping[str, int]


# Text


_INDENT = "    "


def render(check: NodeClassCheck, *, width: int, color: bool) -> str:
    """Each class with what differs, the machines of no class, and a summary."""
    return "\n".join(_lines(check, max(width, 40), Painter(color))) + "\n"


def _lines(check: NodeClassCheck, width: int, paint: Painter) -> Iterator[str]:
    for item in check.classes:
        yield from _class(item, width, paint)
    for machines in check.uncovered:
        yield from _uncovered(machines, width, paint)
    if check.unknown:
        keys = (f"{key} ({count(number, 'node')})" for key, number in check.unknown.items())
        text = f"labels and resources that are not known: {listing(keys, 20)}"
        yield from wrapped(text, width, "", _INDENT)
    states = [item.state for item in check.classes]
    parts = [
        f"{states.count(state)} {state_word(state)}"
        for state in get_args(ClassState)
        if state in states
    ]
    classes = f"{len(states)} node class{'es' if len(states) != 1 else ''}"
    yield f"{count(check.nodes, 'node')}, {classes}: {', '.join(parts)}"


def _class(item: ClassCheck, width: int, paint: Painter) -> Iterator[str]:
    word = state_word(item.state)
    about = f"{item.name} ({item.backend}, {item.place}): {count(item.nodes, 'node')}"
    first, *rest = wrapped(f"{word:9}  {about}", width, "", _INDENT)
    yield paint.state(item.state) + first[len(word) :]
    yield from rest
    for difference in item.differences:
        yield from wrapped(_difference(difference), width, _INDENT, _INDENT * 2)
    if item.not_compared:
        text = f"not compared, as these machines do not report it: {listing(item.not_compared)}"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)


def _difference(item: NodeDifference) -> str:
    nodes = f"{count(len(item.nodes), 'node')}: {listing(item.nodes, 5)}"
    if item.state == "undecided":
        return f"{item.field} should be {item.expected} but is not reported by {nodes}"
    return f"{item.field} should be {item.expected} but is {item.seen or 'missing'} on {nodes}"


def _uncovered(item: Uncovered, width: int, paint: Painter) -> Iterator[str]:
    what = ", ".join(item.products or item.resources) or "devices"
    other = "" if item.in_specification else ", which the specification does not have"
    text = (
        f"no class  {count(len(item.nodes), 'node')} of {item.backend}{other}: {what} "
        f"({listing(item.nodes, 5)})"
    )
    first, *rest = wrapped(text, width, "", _INDENT)
    yield paint(first, "red" if item.in_specification else "dim")
    yield from rest
