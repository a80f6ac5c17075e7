"""A program in a real terminal (a pty, read by pyte), for tests and `bench/explore.py`."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte

COLUMNS, LINES = 80, 24
#: Seconds until a screen has to be there: of a busy machine, and far more than it takes.
PATIENCE = 300


class Terminal:
    """A terminal with the program in it."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, text: str, patience: float = PATIENCE) -> None:
        """Read until `text` is on the screen."""
        end = time.monotonic() + patience
        while text not in self.text:
            assert time.monotonic() < end, f"{text!r} is not on the screen:\n{self.text}"
            if not self.read(0.2) and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.text}")

    def read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        try:
            data = os.read(self._descriptor, 65536) if ready else b""
        except OSError:
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def ended(self) -> int:
        """Read the rest, and wait for the end."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        while self.read(0):
            pass
        return self.process.wait(1)


@contextmanager
def terminal(folder: Path, *command: str | Path, **environment: str) -> Iterator[Terminal]:
    """Run `command` in a terminal, with these variables beside ours."""
    descriptor, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TEXTUAL_DRIVER"):
        if name not in environment:
            variables.pop(name, None)
    process = subprocess.Popen(
        command,
        stdin=child, stdout=child, stderr=child, cwd=folder, env=variables, start_new_session=True,
    )  # fmt: skip
    os.close(child)
    try:
        yield Terminal(descriptor, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(descriptor)
