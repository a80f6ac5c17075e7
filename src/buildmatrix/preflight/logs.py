"""Reader for the output of pods (`probes/pod.py`) in logs.

A log may be of one pod or many, complete or cut, plain or with the prefixes of `kubectl logs
--prefix --timestamps`. Logs are untrusted text: their size, lines and runs are limited, and
omissions are reported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import printable, shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.preflight.manifests import LOG_SCHEMA, Answer

#: Limits: bytes of one log and of one line, files of a folder, runs, lines of one run.
LARGEST, LONGEST, MOST_FILES, MOST_RUNS, MOST_LINES = 64 << 20, 256 << 10, 2_000, 5_000, 50_000
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
    while text := stream.readline(LONGEST):
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
            run = runs[line.run] = PodLog(source, _make_printable(line.run))
        _add_line(run, line)


def _add_line(run: PodLog, line: _Line) -> None:
    if line.line in run.numbers or not 0 <= line.line < MOST_LINES:
        return  # The same log may be passed twice.
    run.numbers.add(line.line)
    if line.kind == "begin" and run.steps is None:
        if line.schema != LOG_SCHEMA:
            raise UsageError(
                f"{run.source}: a pod printed {_make_printable(line.schema)!r}, and this version "
                f"reads {LOG_SCHEMA!r}; collect it with the version that wrote its manifest"
            )
        run.about = _make_description(line)
        run.steps = tuple((step.rung, step.key) for step in line.steps)
    elif line.kind == "check":
        run.lines.setdefault(line.step, []).append(line.text)
    elif line.kind == "exit":
        run.ends[line.step] = Answer((), line.noise, line.code, line.timed_out, line.seconds)
        run.dropped += line.dropped
    elif line.kind == "stopped":
        run.signal = _make_printable(line.signal)


def _make_description(line: _Line) -> PodDescription:
    said: dict[str, Any] = {}
    for name in PodDescription.__struct_fields__:
        value = getattr(line, name)
        said[name] = _make_printable(value) if isinstance(value, str) else value
    return PodDescription(**{**said, "repeat": max(1, min(line.repeat, 1000))})


def _make_printable(text: str) -> str:
    return printable(shown(text[:300]))
