"""Progress, log and failed step of one build, from the output of `--progress=rawjson`.

Each line is one JSON object of BuildKit's `client.SolveStatus` (moby/buildkit, client/graph.go):
lists of vertexes (steps), statuses (transfers), logs (output, base64) and warnings. The stream is
followed by plain text: the source excerpt and the final `ERROR: ...`.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import IO

import msgspec
from msgspec import Struct, field

from buildmatrix.base.progress import Progress
from buildmatrix.base.text import size
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.process import plain, shorten

#: Maximum bytes of a line. BuildKit splits the output of a step into logs of at most 32 KiB.
MAX_LINE = 1 << 20


class Vertex(msgspec.Struct, frozen=True):
    """One step, sent again whenever it starts, ends or fails."""

    digest: str
    name: str = ""
    started: datetime | None = None
    completed: datetime | None = None
    cached: bool = False
    error: str = ""


class Status(msgspec.Struct, frozen=True):
    """Progress of one transfer of a step, in bytes."""

    id: str
    vertex: str
    current: int = 0
    total: int = 0


class Log(msgspec.Struct, frozen=True):
    """Output of a step, which may end inside a line."""

    vertex: str
    data: bytes = b""


class Objection(msgspec.Struct, frozen=True):
    """A warning of the Dockerfile's frontend."""

    short: bytes = b""


class Message(msgspec.Struct, frozen=True):
    """One line of the stream."""

    vertexes: tuple[Vertex, ...] = ()
    statuses: tuple[Status, ...] = ()
    logs: tuple[Log, ...] = ()
    warnings: tuple[Objection, ...] = ()


_decoder = msgspec.json.Decoder(prepare_type(Message))


def messages(stream: IO[bytes]) -> Iterator[Message | str]:
    """Yield a `Message` per JSON line, and the text of other lines.

    Bounded in memory: lines longer than `MAX_LINE` are truncated, and yielded as text.
    """
    while line := stream.readline(MAX_LINE):
        if not line.endswith(b"\n") and len(line) == MAX_LINE:
            while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        if line.startswith(b"{"):
            try:
                yield _decoder.decode(line)
                continue
            except msgspec.MsgspecError:
                pass  # A step cannot write here, so this is buildx speaking in words.
        yield line.decode(errors="replace").rstrip()


# One build


#: Lines of a step's output to keep for the explanation of its failure.
TAIL = 40
#: Characters of a step in the progress display.
STEP = 100
#: Maximum characters of a line of output; longer ones are progress bars without line ends.
LINE = 2000
#: Minimum bytes of a transfer that is shown.
TRANSFER = 10_000_000

# `[image build 2/7] RUN ...`: buildx adds the bake target if there are several.
_NAME = re.compile(r"\[(?P<where>[^\]]*)\]\s*(?P<what>.*)", re.DOTALL)
# Internal steps of buildx and BuildKit: short, or open during the whole export.
_BOOKKEEPING = re.compile(
    "resolving provenance for metadata file|load local bake definitions|"
    r"load build definition from \S+|load \.dockerignore|"
    r"stage-\d+ 1/1 COPY --from=scanner .*|exporting to client directory"
)
# Omitted in displayed names; the log has it.
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")
# BuildKit's error for steps that it cancelled after another one failed.
_CANCELLED = re.compile(r"context canceled|code = Canceled|^Canceled$")


class FailedStep(Struct, frozen=True):
    """The step that failed a build."""

    #: `[image build 2/7] RUN ...`
    name: str
    error: str
    #: The last lines of its output.
    output: tuple[str, ...]


class _Step(Struct):
    number: int
    name: str
    started: bool = False
    ended: bool = False
    partial: str = ""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))


def is_scan(step_name: str) -> bool:
    """Return True if a step is the scanner: the only one that mounts the root file system.

    Stage and target names are no criterion: BuildKit names a shared step after either target.
    """
    return " RUN " in step_name and "target=/rootfs" in step_name


def step_text(name: str) -> str:
    """Return a step's name for the progress display: `build 2/7 RUN ...`, `scan`."""
    if is_scan(name):
        return "scan"
    name = _DIGEST.sub("", name)
    match = _NAME.fullmatch(name)
    if match is None:
        return shorten(name, STEP)
    # Remove the target of `image build 2/7`: each line of the display has one target.
    place = match["where"].split()
    where = " ".join(place[-2:] if place[-1:] and "/" in place[-1] else [])
    return shorten(f"{where} {match['what']}", STEP)


class Follower(Struct):
    """Converter of a build's messages to progress and a readable log.

    The log has one line per event: seconds since the start, the step's number, and the event.
    """

    target: str
    log: IO[str]
    progress: Progress
    #: The first failed step, if any.
    failed: FailedStep | None = None
    #: The last plain-text lines of buildx.
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    _start: float = field(default_factory=time.monotonic)
    _steps: dict[str, _Step] = field(default_factory=dict)
    _running: dict[str, str] = field(default_factory=dict)
    _shown: str = ""
    _tenths: dict[tuple[str, str], int] = field(default_factory=dict)

    def feed(self, message: Message | str) -> None:
        """Process one element of `messages`."""
        if isinstance(message, str):
            text = plain(message)
            self.lines.append(text)
            self._write(text)
            return
        # Output first: a message may have the end of a step and its last output.
        for vertex in message.vertexes:
            self._step(vertex)
        for log in message.logs:
            self._output(log)
        for vertex in message.vertexes:
            self._vertex(vertex)
        for status in message.statuses:
            self._transfer(status)
        for warning in message.warnings:
            self._write(f"warning: {plain(warning.short.decode(errors='replace'))}")

    def _step(self, vertex: Vertex) -> _Step:
        step = self._steps.get(vertex.digest)
        if step is None:
            step = self._steps[vertex.digest] = _Step(len(self._steps) + 1, plain(vertex.name))
        return step

    def _vertex(self, vertex: Vertex) -> None:
        step = self._step(vertex)
        if vertex.started and not step.started:
            step.started = True
            self._write(f"#{step.number} {step.name}")
            text = step_text(step.name)
            if not (vertex.cached or _BOOKKEEPING.fullmatch(text)):
                # A short step may begin and end in one message, and is still shown.
                self._show(text)
                if not vertex.completed:
                    self._running[vertex.digest] = text
        if vertex.completed and not step.ended:
            step.ended = True
            self._running.pop(vertex.digest, None)
            self._flush(step)
            self._write(f"#{step.number} {_ending(vertex)}")
        # A step may end more than once: a context is found first and copied later.
        if vertex.error and self.failed is None and not _CANCELLED.search(vertex.error):
            self._flush(step)
            self.failed = FailedStep(step.name, plain(vertex.error), tuple(step.tail))
        if self._running:
            self._show(next(reversed(self._running.values())))

    def _show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            self.progress.step(self.target, text)

    def _output(self, log: Log) -> None:
        step = self._steps.get(log.vertex)
        if step is None:
            return
        # A carriage return redraws the line: each version becomes a separate line.
        text = step.partial + log.data.decode(errors="replace")
        *lines, step.partial = re.split(r"\r\n|\n|\r", text)
        if len(step.partial) > LINE:
            lines.append(step.partial)
            step.partial = ""
        for line in lines:
            self._line(step, line)

    def _line(self, step: _Step, text: str) -> None:
        text = plain(text).rstrip()[:LINE]
        if text:
            step.tail.append(text)
            self._write(f"#{step.number} | {text}")
            self.progress.output(self.target, text)

    def _flush(self, step: _Step) -> None:
        if step.partial:
            self._line(step, step.partial)
            step.partial = ""

    def _transfer(self, status: Status) -> None:
        """Show a large download in steps of a tenth: a base image may take minutes."""
        if status.total < TRANSFER:
            return
        key, tenth = (status.vertex, status.id), 10 * status.current // status.total
        if self._tenths.get(key) != tenth:
            self._tenths[key] = tenth
            self.progress.output(
                self.target,
                f"{plain(status.id)[:40]} {size(status.current)} of {size(status.total)}",
            )

    def _write(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        for line in text.splitlines() or [""]:
            self.log.write(f"{elapsed:8.2f} {line}\n")
        self.log.flush()


def _ending(vertex: Vertex) -> str:
    if vertex.error:
        return f"error: {plain(vertex.error)}"
    if vertex.cached:
        return "cached"
    if vertex.started and vertex.completed:
        return f"done in {(vertex.completed - vertex.started).total_seconds():.1f} s"
    return "done"
