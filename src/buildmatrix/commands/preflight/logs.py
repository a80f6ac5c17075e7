"""What pods printed (`probes/pod.py`), read out of logs of any kind: of one pod or of many, whole
or cut, plain or with what `kubectl logs --prefix --timestamps` puts before each line.

Logs are foreign text: their size, lines and runs are bounded, and what is left out is said.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from buildmatrix.commands.preflight.manifests import LOG_SCHEMA
from buildmatrix.commands.preflight.plan import Answer
from buildmatrix.errors import UsageError
from buildmatrix.text import printable, shown
from buildmatrix.threads import prepare_type

#: Bytes of one log and of one line, files of a folder, runs, lines of one run.
LARGEST, LONGEST, MOST_FILES, MOST_RUNS, MOST_LINES = 64 << 20, 256 << 10, 2_000, 5_000, 50_000
#: How each line of a pod begins, behind any prefix.
_BEGINNING = b'{"buildmatrix":'


class _Step(msgspec.Struct, frozen=True):
    rung: str
    key: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod was to do, and where it is: its first line."""

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


class _Line(About, frozen=True, kw_only=True, rename={"kind": "buildmatrix"}):
    """One line; which fields it has depends on its kind."""

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


@dataclass(slots=True)
class PodLog:
    """What one pod printed, as far as it is there."""

    #: Where it was read.
    source: str
    run: str
    about: About = field(default_factory=About)
    #: Rung and key of each command that it announced; None where its beginning is missing.
    steps: tuple[tuple[str, str], ...] | None = None
    #: Lines with checks of each command, and how it ended.
    lines: dict[int, list[str]] = field(default_factory=dict)
    ends: dict[int, Answer] = field(default_factory=dict)
    #: Whether it came to its end; the signal that stopped it before.
    is_whole: bool = False
    signal: str = ""
    #: Lines that the pod or we left out, and the numbers of those that are there.
    dropped: int = 0
    numbers: set[int] = field(default_factory=set)

    @property
    def where(self) -> str:
        """The machine, else the pod."""
        name = self.about.node or self.about.pod or "an unknown node"
        return f"{name} with {self.about.nodes - 1} more" if self.about.nodes > 1 else name

    @property
    def missing(self) -> int:
        """Lines that are not there, in front of the last one that is."""
        return self.dropped + max(self.numbers, default=-1) + 1 - len(self.numbers)

    def answers(self, rung: str) -> dict[str, list[Answer]]:
        """What the commands of a rung gave, by their keys."""
        by_key: dict[str, list[Answer]] = {}
        for number, (name, key) in enumerate(self.steps or ()):
            if name == rung:
                end = self.ends.get(number, Answer())
                lines = tuple(self.lines.get(number, ()))
                answer = replace(end, lines=lines)
                by_key.setdefault(key, []).append(answer)
        return by_key

    def lost(self) -> str:
        """Why its end is missing, as far as it is known."""
        if self.signal:
            return f"the pod {self.about.pod} was ended by {self.signal}: evicted, or out of time"
        return (
            f"the log of the pod {self.about.pod} has no end: it still runs, was evicted or "
            "deleted, or ran out of memory; `kubectl describe pod` knows"
        )


def read(names: Sequence[str]) -> tuple[PodLog, ...]:
    """The pods in logs: files, folders of files, `-` for standard input.

    Raises `UsageError` for what cannot be read, and where there is no pod of a preflight.
    """
    runs: dict[str, PodLog] = {}
    for source, stream in _streams(names):
        with stream:
            _read(source, stream, runs)
    if not runs:
        raise UsageError(
            f"{', '.join(names)}: no pod of a preflight has printed this; "
            "give what `kubectl logs` prints of the jobs of `preflight --kubernetes`"
        )
    return tuple(runs.values())


def _streams(names: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
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
                    raise UsageError(f"{file} is no file that can be read")
                yield str(file), file.open("rb")
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error.strerror}") from error


def _read(source: str, stream: BinaryIO, runs: dict[str, PodLog]) -> None:
    for text in _lines(source, stream):
        _, begins, rest = text.partition(_BEGINNING)
        if not begins:
            continue
        try:
            line = msgspec.json.decode(_BEGINNING + rest, type=prepare_type(_Line))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            # Cut in the middle, or no line of ours: what it ended is without an end now.
            continue
        run = runs.get(line.run)
        if run is None:
            if len(runs) == MOST_RUNS:
                raise UsageError(f"{source}: more than {MOST_RUNS} pods; give them in parts")
            run = runs[line.run] = PodLog(source, _safe(line.run))
        _take(run, line)


def _take(run: PodLog, line: _Line) -> None:
    if line.line in run.numbers or not 0 <= line.line < MOST_LINES:
        return  # The same log may be given twice.
    run.numbers.add(line.line)
    if line.kind == "begin" and run.steps is None:
        if line.schema != LOG_SCHEMA:
            raise UsageError(
                f"{run.source}: a pod printed {_safe(line.schema)!r}, and this version reads "
                f"{LOG_SCHEMA!r}; collect it with the version that wrote its manifest"
            )
        run.about = _about(line)
        run.steps = tuple((step.rung, step.key) for step in line.steps)
    elif line.kind == "check":
        run.lines.setdefault(line.step, []).append(line.text)
    elif line.kind == "exit":
        run.ends[line.step] = Answer((), line.noise, line.code, line.timed_out, line.seconds)
        run.dropped += line.dropped
    elif line.kind == "end":
        run.is_whole = True
    elif line.kind == "stopped":
        run.signal = _safe(line.signal)


def _about(line: _Line) -> About:
    said = {name: getattr(line, name) for name in About.__struct_fields__}
    safe = {name: _safe(value) if isinstance(value, str) else value for name, value in said.items()}
    return msgspec.convert({**safe, "repeat": max(1, min(line.repeat, 1000))}, prepare_type(About))


def _lines(source: str, stream: BinaryIO) -> Iterable[bytes]:
    """Lines of bounded length; of a longer one, the beginning."""
    size = 0
    while line := stream.readline(LONGEST):
        size += len(line)
        if size > LARGEST:
            raise UsageError(f"{source} has more than {LARGEST >> 20} MiB; give it in parts")
        yield line


def _safe(text: str) -> str:
    return printable(shown(text[:300]))
