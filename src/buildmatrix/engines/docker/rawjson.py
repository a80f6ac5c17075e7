"""Parser of the standard error of `docker buildx bake --progress=rawjson`.

Each line is one JSON object of BuildKit's `client.SolveStatus` (moby/buildkit, client/graph.go):
lists of vertexes (steps), statuses (transfers), logs (output, base64) and warnings. The stream is
followed by plain text: the source excerpt and the final `ERROR: ...`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import IO

import msgspec

from buildmatrix.threads import prepare_type

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
            _skip_rest_of_line(stream)
        if line.startswith(b"{"):
            try:
                yield _decoder.decode(line)
                continue
            except msgspec.MsgspecError:
                pass  # A step cannot write here, so this is buildx speaking in words.
        yield line.decode(errors="replace").rstrip()


def _skip_rest_of_line(stream: IO[bytes]) -> None:
    while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
        pass
