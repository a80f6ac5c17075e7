"""Running commands, keeping daemons and holding the lock.

A daemon is known by its pid together with its start time and the boot it belongs to,
so that a recycled pid, or a state file from another boot, never leads to a signal to
a stranger.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import StackError
from .progress import EVERY, say

_TAIL_LINES = 15


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, or a word that there is none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"


def run(
    argv: Sequence[str | Path],
    *,
    log: Path,
    why: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 900,
) -> None:
    """Run a command with its output in a log; on failure raise `why` with the log's end.

    Prints the log's last line every `EVERY` seconds.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    with log.open("wb") as sink:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
            )
        except FileNotFoundError as error:
            raise StackError(f"{why}: the program {argv[0]} is missing.") from error
        try:
            while True:
                try:
                    code = child.wait(EVERY)
                    break
                except subprocess.TimeoutExpired as error:
                    if time.monotonic() > deadline:
                        text = f"{why}: no end after {timeout:.0f} s, see {log}."
                        raise StackError(text) from error
                    say(f"{Path(argv[0]).name}: {tail(log, 1)}")
        finally:
            child.kill()
            child.wait()
    if code:
        raise StackError(f"{why} (exit code {code}). Last lines of {log}:\n{tail(log)}")


def output(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 30
) -> str | None:
    """The command's stdout, or None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _boot_id() -> str:
    """The kernel's name for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> int | None:
    """Clock ticks between boot and the start of a live process; None once it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _pids() -> list[int]:
    """Every process but this one."""
    names = [entry.name for entry in Path("/proc").iterdir()]
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


@dataclass(frozen=True)
class Daemon:
    """A process that `up` started and `down` may stop."""

    name: str
    pid: int
    start_time: int
    boot: str
    port: int = 0

    @classmethod
    def of_pid(cls, name: str, pid: int, port: int = 0) -> Daemon | None:
        """The identity of a live process, None when it has ended."""
        start_time = _start_time(pid)
        return None if start_time is None else cls(name, pid, start_time, _boot_id(), port)

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot == _boot_id() and _start_time(self.pid) == self.start_time

    def stop(self, patience: float = 30) -> None:
        """Ask it to end, insist when it does not, and wait until it is gone."""
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
            if not self.alive():
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            if wait_until(lambda: not self.alive(), seconds):
                return
        raise StackError(f"{self.name} (pid {self.pid}) does not end.")


def wait_until(ready: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    """Poll until ready or the deadline; say which of the two it was."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def start(
    name: str,
    argv: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    seconds: float,
    env: Mapping[str, str] | None = None,
    port: int = 0,
) -> Daemon:
    """Start a daemon in a session of its own and return once it answers."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    daemon = Daemon.of_pid(name, child.pid, port)
    if daemon and wait_until(lambda: child.poll() is not None or ready(), seconds):
        if child.poll() is None:
            return daemon
        problem = f"{name} ended at once with exit code {child.returncode}"
    else:
        problem = f"{name} did not answer within {seconds:.0f} s"
    if daemon:
        child.kill()
        child.wait()
    raise StackError(f"{problem}. Last lines of {log}:\n{tail(log)}")


def processes_naming(folder: Path, programs: Collection[str]) -> list[Daemon]:
    """Live processes of these programs with an argument that lies in the folder.

    In the stack's run folder those are what an earlier `up` started and no record knows
    of any more: containerd and its shims outlive an engine that was killed.
    """
    needle = os.fsencode(folder) + b"/"
    found = []
    for pid in _pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        named = any(needle in argument for argument in arguments[1:])
        program = Path(os.fsdecode(arguments[0])).name
        if named and program in programs and _namespaces(pid) == 1:
            daemon = Daemon.of_pid(program, pid)
            if daemon:
                found.append(daemon)
    return found


def processes_rooted_in(folder: Path) -> list[Daemon]:
    """Live processes whose root file system is an overlay with its upper layer in the folder.

    In an engine's data these are its containers and build steps, and nothing else.
    """
    needle = f"upperdir={folder}/"
    found = []
    for pid in _pids():
        try:
            mounts = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        rooted = any(line.split()[4] == "/" and needle in line for line in mounts)
        if rooted and _namespaces(pid) <= 2:
            daemon = Daemon.of_pid("a container's process", pid)
            if daemon:
                found.append(daemon)
    return found


def _namespaces(pid: int) -> int:
    """Return how many PID namespaces a process is in, from ours on; 0 where it has ended.

    A machine of `scripts/bare` has an engine in the same folders: its daemons are in two, and its
    containers in three.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return next(len(line.split()) - 1 for line in status.splitlines() if line[:6] == "NSpid:")


class State:
    """The daemons on record, kept in one small JSON file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Daemon]:
        """The recorded daemons that still run."""
        try:
            records = json.loads(self._path.read_text(encoding="utf-8"))
            daemons = [Daemon(**record) for record in records]
        except (OSError, ValueError, TypeError):
            return {}
        return {daemon.name: daemon for daemon in daemons if daemon.alive()}

    def add(self, daemon: Daemon) -> None:
        """Record one more daemon."""
        self._write({**self.read(), daemon.name: daemon})

    def remove(self, name: str) -> None:
        """Forget one daemon."""
        self._write({key: value for key, value in self.read().items() if key != name})

    def _write(self, daemons: Mapping[str, Daemon]) -> None:
        replace(self._path, json.dumps([asdict(d) for d in daemons.values()], indent=1) + "\n")


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock; a second `up` or `down` waits here for the first."""
    with lock.open("w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command of the stack is at work, waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def unmount(folders: Sequence[Path]) -> None:
    """Unmount what is still mounted on or below the folders, the deepest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        point = line.split()[4].encode("ascii").decode("unicode_escape")
        if any(Path(point).is_relative_to(folder) for folder in folders):
            points.append(point)
    for point in sorted(points, key=len, reverse=True):
        if output(["umount", point]) is None:
            output(["umount", "--lazy", point])
