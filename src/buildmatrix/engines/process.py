"""Programs that are started, listened to, and ended with all their children."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from buildmatrix.errors import Interrupted

#: Seconds that a program has to clean up after SIGINT: buildx cancels its build in them.
GRACE = 10.0


#: `prctl(2)`: the signal that a process gets when the thread ends that started it.
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Watch:
    """Ends a program that waits in silence for somebody who does not answer any more."""

    def __init__(self, patience: float, answers: Callable[[], bool]) -> None:
        """`answers` is asked after `patience` seconds of silence, and once more after as many."""
        self._patience = patience
        self._answers = answers
        self._heard = time.monotonic()
        self._over = threading.Event()
        #: Whether it ended the program.
        self.gave_up = False

    def heard(self) -> None:
        """Note that the program said something."""
        self._heard = time.monotonic()

    @contextlib.contextmanager
    def over(self, end: Callable[[], None]) -> Iterator[None]:
        """Watch while the block runs; `end` ends the program."""
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
    """The programs that run now, each leading a process group of its own.

    A group of its own keeps the terminal's Ctrl-C away from them: they are ended by `cancel`, once
    and in order. Should this process be killed outright, Linux ends them by SIGTERM; elsewhere the
    pipe that it reads breaks, and a program that writes into it ends by SIGPIPE.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
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
        before.
        Raises `Interrupted` when `cancel` was called before or meanwhile.
        """
        with self._lock:
            if self._cancelled:
                raise Interrupted("interrupted before the build began")
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if both else subprocess.DEVNULL,
                stderr=subprocess.STDOUT if both else subprocess.PIPE,
                start_new_session=True,
                # One system call that was looked up before: no lock that another thread may hold.
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
        """End every program that runs; returns when all are gone. None starts afterwards."""
        with self._lock:
            self._cancelled = True
            running = list(self._running)
        _end(running)


def _end_with_parent() -> None:
    """Have the kernel end a program, which this runs in, when the one that starts it ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGINT to the groups, SIGKILL to what is left of them after `GRACE` seconds."""
    for process in processes:
        _signal(process, signal.SIGINT)
    deadline = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        # The leader may be gone and a child of it not.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
