"""Calls of probes and their output, also in the logs of pods.

The output is untrusted: an image's own code runs beside them.

A probe is one Python file, together with those beside it that it imports, passed to the interpreter
of the image as `python -c SOURCE OPTIONS`, with OPTIONS as JSON. It prints one line per check: a
mark of this run, and JSON with the fields of `reports.preflight.Check`. Other output is noise
of libraries. Each run has a new mark, so that no line printed by a library counts by chance; an
image can still deceive its own owner, as with any test.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import printable, shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.preflight.manifests import LOG_SCHEMA, Answer
from buildmatrix.reports.preflight import Check

#: Variables that hide devices of any vendor from a program.
_HIDING = "*VISIBLE*"


def list_frameworks(backend: str, catalogue: Catalogue) -> Mapping[str, Mapping[str, list[str]]]:
    """Map framework modules to all device names (`kinds`) and the `wanted` ones.

    `imports` are modules that provide the wanted ones. A framework with only the CPU is omitted for
    other backends, since it is irrelevant to them.
    """
    entries = catalogue.framework_devices
    has_vendor = catalogue.vendor_of(backend) is not None
    questions: dict[str, Mapping[str, list[str]]] = {}
    for name in dict.fromkeys(owned.entry.framework for owned in entries):
        own = [owned for owned in entries if owned.entry.framework == name]
        wanted = [owned.entry for owned in own if owned.backend == backend]
        if has_vendor and all(owned.vendor is None for owned in own):
            continue
        kinds = (kind for owned in own for kind in owned.entry.devices)
        questions[name] = {
            "kinds": list(dict.fromkeys(kinds)),
            "imports": [module for entry in wanted for module in entry.imports],
            "wanted": [kind for entry in wanted for kind in entry.devices],
        }
    return questions


def list_hosts(backend: str, catalogue: Catalogue) -> list[dict[str, object]]:
    """Return the signs of the backend's devices on a machine, for the probe."""
    return [
        {
            "nodes": list(owned.entry.nodes),
            "sysfs": owned.entry.sysfs or "",
            "vendor": owned.entry.pci_vendor or "",
            "needs": list(owned.entry.needs),
            "modules": list(owned.entry.modules),
            "version_files": list(owned.entry.version_files),
            "version": owned.entry.version,
        }
        for owned in catalogue.hosts
        if owned.backend == backend
    ]


def list_variables(backend: str, catalogue: Catalogue) -> list[str]:
    """Return globs of the variables relevant to devices of the backend."""
    files = (file for file in catalogue.files.values() if file.backend == backend)
    # Common variables (PATH) are a backend's only by value.
    entries = (entry for file in files for entry in file.environment if not entry.values)
    names = (name for entry in entries for name in entry.names)
    return list(dict.fromkeys([_HIDING, *names]))


#: Limits: characters of one line, checks of one probe, characters of a message.
LONGEST, MOST, MESSAGE = 64 << 10, 2_000, 2_000
#: Subjects of the checks by which probes announce others: modules, or frameworks.
_LISTINGS = ("modules", "frameworks")
#: Package of the probes, and pattern of imports between them.
_PROBES = "buildmatrix.preflight.probes"
_PART = re.compile(rf"^from {re.escape(_PROBES)}\.(\w+) import", re.MULTILINE)
#: A probe as one file: its parts become modules, which are then imported without their package.
_PROGRAM_WITH_PARTS = """\
import sys, types
for _name, _text in {parts!r}:
    sys.modules[_name] = types.ModuleType(_name)
    exec(compile(_text, _name, "exec"), sys.modules[_name].__dict__)
exec(compile({source!r}, "probe", "exec"))
"""


class ProbeCall(Struct, frozen=True):
    """A command line that runs a probe, and the mark of its answers."""

    command: tuple[str, ...]
    mark: str


def make_call(name: str, options: Mapping[str, object]) -> ProbeCall:
    """Return the call of the probe of that name (a file in `probes`) with the image's Python."""
    mark = f"@@buildmatrix-{secrets.token_hex(8)}@@"
    text = json.dumps({**options, "mark": mark}, separators=(",", ":"))
    parts: dict[str, str] = {}
    program = _collect_source(name, parts)
    if parts:
        program = _PROGRAM_WITH_PARTS.format(parts=list(parts.items()), source=program)
    return ProbeCall(("python", "-c", program, text), mark)


def _collect_source(name: str, parts: dict[str, str]) -> str:
    """Return the source of a file; add its imports to `parts`, dependencies first."""
    source = files(_PROBES).joinpath(f"{name}.py").read_text()
    for part in _PART.findall(source):
        if f"{_PROBES}.{part}" not in parts:
            text = _collect_source(part, parts)
            parts[f"{_PROBES}.{part}"] = text
    return source


def read_checks(output: str, mark: str) -> tuple[Check, ...]:
    """Return the checks in a probe's output.

    A marked line that is not a check counts as an undecided one, so that nothing is lost.
    """
    read: list[Check] = []
    for line in output.splitlines():
        _, begins, text = line.partition(mark)
        if not begins:
            continue
        if len(read) == MOST:
            read.append(Check("more", "undecided", f"the probe reported more than {MOST} checks"))
            break
        read.append(_parse_check(text))
    return tuple(read)


def _parse_check(text: str) -> Check:
    if len(text) > LONGEST:
        return Check("a line", "undecided", f"the probe printed {len(text)} characters on one line")
    try:
        check = msgspec.json.decode(text, type=prepare_type(Check))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return Check("a line", "undecided", f"the probe printed an invalid check: {error}")
    return Check(
        _make_printable(check.subject, 200),
        check.state,
        _make_printable(check.message, MESSAGE),
        check.seconds,
        {_make_printable(key, 100): value for key, value in list(check.values.items())[:100]},
    )


def _make_printable(text: str, length: int) -> str:
    return printable(shown(text[:length]))


def call_probe(
    run: Run, name: str, options: Mapping[str, object], seconds: float
) -> tuple[tuple[Check, ...], RunResult]:
    """Run a probe for at most `seconds`; return its checks, and how it ended."""
    call = make_call(name, options)
    ended = run(call.command, seconds)
    return read_checks(ended.output, call.mark), ended


def run_probe(
    run: Run, name: str, options: Mapping[str, object], seconds: float, subject: str
) -> tuple[tuple[Check, ...], list[str] | None]:
    """Run a probe that announces its checks; return them, and the announced names.

    The names are None if it ended before. Then the last check is undecided; it is about `subject`
    if nothing else was seen.
    """
    seen, ended = call_probe(run, name, options, seconds)
    listing = next((check for check in seen if check.subject in _LISTINGS), None)
    if listing is not None:
        return tuple(c for c in seen if c is not listing), read_texts(listing, "names")
    if seen:
        return (*seen, Check("frameworks", "undecided", "the probe ended before them")), None
    why = (
        f"the probe did not end within {seconds:g} s"
        if ended.timed_out
        else f"the probe ended with exit code {ended.exit_code} before it began: "
        + " ".join(ended.output.split())[-300:]
    )
    return (Check(subject, "undecided", why),), None


def make_missing_checks(
    expected: Sequence[str], seen: Sequence[Check], why: str = "the probe ended before this check"
) -> tuple[Check, ...]:
    """Return undecided checks for expected subjects of which a probe reported nothing.

    A framework, `torch`, may be reported by its parts: `torch cuda:0 float32`.
    """
    subjects = {check.subject for check in seen}
    subjects |= {subject.partition(" ")[0] for subject in subjects}
    return tuple(Check(name, "undecided", why) for name in expected if name not in subjects)


def read_texts(check: Check, name: str) -> list[str]:
    """Return a list of texts among the values of a check; empty for other values."""
    value = check.values.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


# Logs of pods (`probes/pod.py`).
#
# A log may be of one pod or many, complete or cut, plain or with the prefixes of `kubectl logs
# --prefix --timestamps`. Logs are untrusted text: their size, lines and runs are limited, and
# omissions are reported.


#: Limits: bytes of one log and of one line, files of a folder, runs, lines of one run.
LARGEST, LONGEST_LINE, MOST_FILES, MOST_RUNS, MOST_LINES = 64 << 20, 256 << 10, 2_000, 5_000, 50_000
#: Beginning of each line of a pod, behind any prefix.
_BEGINNING = b'{"buildmatrix":'


class _Step(msgspec.Struct, frozen=True):
    rung: str
    key: str


class PodDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Task and location of a pod, from its first line."""

    target: str = ""
    backend: str = ""
    image: str = ""
    digest: str = ""
    node_class: str = ""
    level: str = ""
    repeat: int = 5
    nodes: int = 1
    node: str = ""
    pod: str = ""


class _Line(PodDescription, frozen=True, kw_only=True, rename={"kind": "buildmatrix"}):
    """One line; its fields depend on its kind."""

    kind: str
    run: str
    #: Its number, from 0.
    line: int
    schema: str = ""
    steps: tuple[_Step, ...] = ()
    step: int = -1
    text: str = ""
    code: int = 0
    seconds: float = 0.0
    timed_out: bool = False
    noise: str = ""
    dropped: int = 0
    signal: str = ""


class PodLog(Struct):
    """Output of one pod, as far as available."""

    #: Log that it was read from.
    source: str
    run: str
    about: PodDescription = field(default_factory=PodDescription)
    #: Rung and key of each announced command; None if its beginning is missing.
    steps: tuple[tuple[str, str], ...] | None = None
    #: Lines with checks of each command, and its end.
    lines: dict[int, list[str]] = field(default_factory=dict)
    ends: dict[int, Answer] = field(default_factory=dict)
    #: Signal that stopped it.
    signal: str = ""
    #: Number of lines omitted by the pod or by us, and numbers of the available lines.
    dropped: int = 0
    numbers: set[int] = field(default_factory=set)

    @property
    def where(self) -> str:
        """Name of the machine, else the pod."""
        name = self.about.node or self.about.pod or "an unknown node"
        return f"{name} with {self.about.nodes - 1} more" if self.about.nodes > 1 else name

    @property
    def missing(self) -> int:
        """Number of missing lines before the last available one."""
        return self.dropped + max(self.numbers, default=-1) + 1 - len(self.numbers)

    def answers(self, rung: str) -> dict[str, list[Answer]]:
        """Map the keys of a rung's commands to their answers."""
        by_key: dict[str, list[Answer]] = {}
        for number, (name, key) in enumerate(self.steps or ()):
            if name == rung:
                end = self.ends.get(number, Answer())
                lines = tuple(self.lines.get(number, ()))
                answer = replace(end, lines=lines)
                by_key.setdefault(key, []).append(answer)
        return by_key

    def describe_loss(self) -> str:
        """Describe why its end is missing, as far as known."""
        if self.signal:
            return f"the pod {self.about.pod} was ended by {self.signal}: evicted, or out of time"
        return (
            f"the log of the pod {self.about.pod} has no end: it still runs, was evicted or "
            "deleted, or ran out of memory; `kubectl describe pod` knows"
        )


def read_logs(names: Sequence[str]) -> tuple[PodLog, ...]:
    """Read the pods in logs: files, folders of files, `-` for standard input.

    Raises `UsageError` for unreadable logs, and for logs without a pod of a preflight.
    """
    runs: dict[str, PodLog] = {}
    for source, stream in _open_streams(names):
        with stream:
            _read_log(source, stream, runs)
    if not runs:
        raise UsageError(
            f"{', '.join(names)}: not the output of a preflight pod; "
            "give the output of `kubectl logs` for the jobs of `preflight --kubernetes`"
        )
    return tuple(runs.values())


def _open_streams(names: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    for name in names:
        if name == "-":
            yield "standard input", sys.stdin.buffer
            continue
        path = Path(name)
        try:
            files = (
                [path] if not path.is_dir() else sorted(p for p in path.rglob("*") if p.is_file())
            )
            if len(files) > MOST_FILES:
                raise UsageError(f"{name} holds {len(files)} files; at most {MOST_FILES} are read")
            for file in files:
                if not file.is_file():
                    raise UsageError(f"{file} is not a readable file")
                yield str(file), file.open("rb")
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def _read_log(source: str, stream: BinaryIO, runs: dict[str, PodLog]) -> None:
    size = 0
    # Of a line that is too long, the beginning and the rest are read apart.
    while text := stream.readline(LONGEST_LINE):
        size += len(text)
        if size > LARGEST:
            raise UsageError(f"{source} has more than {LARGEST >> 20} MiB; give it in parts")
        _, begins, rest = text.partition(_BEGINNING)
        if not begins:
            continue
        try:
            line = msgspec.json.decode(_BEGINNING + rest, type=prepare_type(_Line))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            # Cut in the middle, or another program's line; the command has no end then.
            continue
        run = runs.get(line.run)
        if run is None:
            if len(runs) == MOST_RUNS:
                raise UsageError(f"{source}: more than {MOST_RUNS} pods; give them in parts")
            run = runs[line.run] = PodLog(source, _make_printable(line.run, 300))
        _add_line(run, line)


def _add_line(run: PodLog, line: _Line) -> None:
    if line.line in run.numbers or not 0 <= line.line < MOST_LINES:
        return  # The same log may be passed twice.
    run.numbers.add(line.line)
    if line.kind == "begin" and run.steps is None:
        if line.schema != LOG_SCHEMA:
            raise UsageError(
                f"{run.source}: a pod printed {_make_printable(line.schema, 300)!r}, and this "
                f"version reads {LOG_SCHEMA!r}; collect it with the version that wrote its manifest"
            )
        run.about = _make_description(line)
        run.steps = tuple((step.rung, step.key) for step in line.steps)
    elif line.kind == "check":
        run.lines.setdefault(line.step, []).append(line.text)
    elif line.kind == "exit":
        run.ends[line.step] = Answer((), line.noise, line.code, line.timed_out, line.seconds)
        run.dropped += line.dropped
    elif line.kind == "stopped":
        run.signal = _make_printable(line.signal, 300)


def _make_description(line: _Line) -> PodDescription:
    said: dict[str, Any] = {}
    for name in PodDescription.__struct_fields__:
        value = getattr(line, name)
        said[name] = _make_printable(value, 300) if isinstance(value, str) else value
    return PodDescription(**{**said, "repeat": max(1, min(line.repeat, 1000))})
