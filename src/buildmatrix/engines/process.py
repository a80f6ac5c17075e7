"""Child processes and files of engines: their end, their output and their errors in messages."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from buildmatrix.base.child import log_process
from buildmatrix.base.errors import BuildError, Interrupted

# Output


# ECMA-48 control sequences (CSI, OSC and two-character escapes), then other C0 and C1 characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Remove colors, cursor movements and other control characters except tab and newline.

    The output of a step is untrusted and could rewrite the user's terminal.
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def shorten(text: str, length: int) -> str:
    """Return text on one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


# Disk errors


_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Raise `BuildError` if the disk of `folder` is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise BuildError(
            f"the disk of {folder} is full; free space there and run again, what was finished is "
            "kept"
        ) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise `BuildError` for operating system errors while writing to `folder`."""
    try:
        with filling(folder):
            yield
    except BrokenPipeError:
        raise  # The reader of our own output is gone: not this folder's trouble.
    except OSError as error:
        place = error.filename or folder
        raise BuildError(
            f"{place} cannot be written: {error.strerror or error}; see that {folder} is a folder "
            "of this user"
        ) from error


# Processes


#: Seconds for cleanup after SIGINT, in which buildx cancels its build.
GRACE = 10.0


#: `prctl(2)`: signal on the end of the parent thread.
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Watch:
    """Watchdog that ends a program which silently waits for an unresponsive daemon."""

    def __init__(self, patience: float, answers: Callable[[], bool]) -> None:
        """Call `answers` after `patience` seconds of silence, and once more after as many."""
        self._patience = patience
        self._answers = answers
        self._heard = time.monotonic()
        self._over = threading.Event()
        #: True if it ended the program.
        self.gave_up = False

    def heard(self) -> None:
        """Record that the program wrote output."""
        self._heard = time.monotonic()

    @contextlib.contextmanager
    def over(self, end: Callable[[], None]) -> Iterator[None]:
        """Watch during the block; `end` ends the program."""
        self.heard()
        thread = threading.Thread(target=self._watch, args=(end,), name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()

    def _watch(self, end: Callable[[], None]) -> None:
        while not self._over.wait(max(0.0, self._heard + self._patience - time.monotonic())):
            if time.monotonic() < self._heard + self._patience:
                continue
            asked_at = time.monotonic()
            is_alive = self._answers()
            if self._over.is_set():
                return
            if not is_alive and self._heard < asked_at:
                self.gave_up = True
                return end()
            self.heard()


class Processes:
    """Running programs, each in its own process group.

    So the terminal's Ctrl-C does not reach them, and `cancel` ends them once and in order. If this
    process is killed, Linux ends them by SIGTERM; elsewhere their output pipe breaks, and they end
    by SIGPIPE.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    def follow(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        read: Callable[[IO[bytes]], None],
        watch: Watch | None = None,
        *,
        both: bool = False,
    ) -> int:
        """Run `command`, let `read` consume its standard error, and return its exit status.

        With `both`, its standard output as well, in the order of the lines. `watch` may end it
        early. Raises `Interrupted` after `cancel`.
        """
        with self._lock:
            if self._cancelled:
                raise Interrupted("interrupted before the build began")
            log_end = log_process(command)
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if both else subprocess.DEVNULL,
                stderr=subprocess.STDOUT if both else subprocess.PIPE,
                start_new_session=True,
                # Only a system call, resolved before the fork: other threads may hold locks.
                preexec_fn=_end_with_parent,  # noqa: PLW1509
            )
            self._running.add(process)
        try:
            said = process.stdout if both else process.stderr
            assert said is not None
            watching = watch.over(lambda: _end([process])) if watch else contextlib.nullcontext()
            with watching, said as stream:
                read(stream)
            status = process.wait()
            log_end(status)
        except BaseException:
            _end([process])
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        if self._cancelled:
            raise Interrupted("interrupted; run again to go on where this stopped")
        return status

    def cancel(self) -> None:
        """End all running programs, and wait for them. No program can start afterwards."""
        with self._lock:
            self._cancelled = True
            running = list(self._running)
        _end(running)


def _end_with_parent() -> None:
    """Let the kernel end this child process with its parent."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send SIGINT to the groups, and SIGKILL to the remaining ones after `GRACE` seconds."""
    for process in processes:
        _signal(process, signal.SIGINT)
    deadline = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        # A child may outlive the group's leader.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
