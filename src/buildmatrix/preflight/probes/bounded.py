"""Run a function, or one command several times, in its own process with limits.

Part of probes, and itself the probe of rung `batch`: runs inside an image, by the image's Python,
3.8 or newer; standard library only. The process is forked before other imports, so that crashes,
hangs, forks and output of one framework do not affect the rest. It is limited in time, memory and
output. See `preflight.protocol` for the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Container, Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

#: Bytes kept of a process's output (the last ones), and bytes of its answers.
OUTPUT, ANSWERS = 16 << 10, 1 << 20
#: Seconds between two checks of a process.
INTERVAL = 0.05
#: Share of the container's memory for one process.
SHARE = 0.8


class Emit(Protocol):
    """Function that sends one answer of a process."""

    def __call__(self, **answer: Any) -> None:
        """Send an answer with these fields."""


@lru_cache(maxsize=1)
def read_options() -> dict[str, Any]:
    """Return the options of the probe."""
    read: dict[str, Any] = json.loads(sys.argv[1])
    return read


def report(
    subject: str, state: str, message: str = "", seconds: float | None = None, **values: Any
) -> None:
    """Print one check in the format of `preflight.protocol`."""
    check: dict[str, Any] = {
        "subject": subject,
        "state": state,
        "message": message,
        "values": values,
    }
    if seconds is not None:
        check["seconds"] = round(seconds, 3)
    sys.stdout.write(read_options()["mark"] + json.dumps(check) + "\n")
    sys.stdout.flush()


class Ended:
    """Result of a process: its answers, and why it ended early."""

    def __init__(self, answers: list[dict[str, Any]], why: str, output: str) -> None:
        self.answers = answers
        #: Empty if it was completed.
        self.why = why
        self.output = output

    @property
    def account(self) -> str:
        """Reason for an early end, with the last lines of output."""
        lines = [line.strip()[:300] for line in self.output.splitlines() if line.strip()]
        # The last line has the exception; output of a library before an abort may be longer.
        said = " / ".join(lines[-1 if self.why.startswith("ended") else -4 :])
        return f"{self.why}: {said}" if said and self.why else self.why


def run(function: Callable[[Emit], None], seconds: float, memory: int) -> Ended:
    """Run `function(emit)` in its own process; each `emit(...)` is one answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    output, said = os.pipe()
    answers, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.close(answers)
        _run_child(function, said, writes)
    os.close(said)
    os.close(writes)
    kept = {output: bytearray(), answers: bytearray()}
    flood = False

    def read(wait: float) -> int:
        nonlocal flood
        count = 0
        for ready in select.select([output, answers], [], [], wait)[0]:
            chunk = os.read(ready, 1 << 16)
            count += len(chunk)
            if ready == output:
                kept[output] = (kept[output] + chunk)[-OUTPUT:]
            elif len(kept[answers]) < ANSWERS:
                kept[answers] += chunk
            else:
                flood = flood or bool(chunk)
        return count

    why, status = _wait(pid, seconds, memory, read)
    # The rest in the pipes; a forked process may keep them open forever.
    for _ in range(2 * (OUTPUT + ANSWERS) >> 16):
        read(0)
    os.close(output)
    os.close(answers)
    if not why and os.WIFSIGNALED(status):
        why = f"died by {_signal_name(os.WTERMSIG(status))}"
    elif not why and os.WEXITSTATUS(status):
        why = f"ended with exit code {os.WEXITSTATUS(status)}"
    if flood:
        why = why or f"answered more than {ANSWERS >> 10} KiB"
    said_all = _parse_answers(kept[answers])
    if {"done": True} not in said_all:
        # A framework may end its process with exit code 0.
        why = why or "ended before it was done"
    real = [answer for answer in said_all if answer != {"done": True}]
    return Ended(real, why, kept[output].decode("utf-8", "replace"))


def ask_each(
    frameworks: Container[str], ask: Callable[[str, dict[str, Any], Emit], None]
) -> Iterator[tuple[str, float, Ended]]:
    """Query each installed framework; yield its name, seconds and result."""
    limits = read_options()
    wanted = {n: how for n, how in limits["frameworks"].items() if n in frameworks and find_spec(n)}
    report("frameworks", "passed", names=list(wanted))
    for name, how in wanted.items():
        began = time.monotonic()
        ended = run(partial(ask, name, how), limits["seconds"], compute_memory_limit())
        yield name, time.monotonic() - began, ended


def _wait(pid: int, seconds: float, memory: int, read: Callable[[float], int]) -> tuple[str, int]:
    """Wait for a process, and kill it and its children at a limit."""
    # A monotonic clock does not jump.
    end, why, next_look = time.monotonic() + seconds, "", 0.0
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        now = time.monotonic()
        if now > end:
            why = f"took more than {seconds:g} s"
        elif now >= next_look:
            next_look = now + INTERVAL
            if measure_resident(pid) > memory:
                why = f"took more than {memory >> 20} MiB of memory"
        if why:
            _kill(pid)
            status = os.waitpid(pid, 0)[1]
            break
        if not read(INTERVAL / 5):
            # It may have closed its output, which would make this loop spin.
            time.sleep(INTERVAL / 50)
    _kill(pid)
    return why, status


def _run_child(function: Callable[[Emit], None], said: int, writes: int) -> None:
    """Run the function in the child process; never returns."""
    code = 1
    try:
        os.setsid()
        with contextlib.suppress(OSError):
            # If memory runs out, the kernel is to choose this process and not its parent.
            Path("/proc/self/oom_score_adj").write_text("1000")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(said, 1)
        os.dup2(said, 2)

        def emit(**answer: Any) -> None:
            line = (json.dumps(answer) + "\n").encode()
            while line:
                line = line[os.write(writes, line) :]

        function(emit)
        emit(done=True)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        # Frameworks often crash at exit; they have answered by then.
        os._exit(code)


def _parse_answers(text: bytearray) -> list[dict[str, Any]]:
    answers = []
    for line in bytes(text).splitlines():
        with contextlib.suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                answers.append(answer)
    return answers


def _kill(pid: int) -> None:
    """Kill a process and its whole session, including processes in other groups."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for other in list_session(pid):
        with contextlib.suppress(OSError):
            os.kill(other, signal.SIGKILL)


def list_session(pid: int) -> list[int]:
    """Return the processes of the session that `pid` leads."""
    members = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == pid:
                    members.append(int(folder.name))
    return members


def measure_process(pid: int) -> int:
    """Return the resident bytes of a process; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def measure_resident(pid: int) -> int:
    """Return the resident bytes of a process and its session."""
    return sum(map(measure_process, {pid, *list_session(pid)}))


def measure_container_memory() -> tuple[int, int]:
    """Return the container's memory limit, and the free part of it, in bytes."""
    fields = dict.fromkeys(("MemTotal", "MemAvailable"), 0)
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in fields:
                fields[name] = int(value.split()[0]) << 10
    limit, free = fields["MemTotal"], fields["MemAvailable"]
    for top, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        # "max" means no limit.
        with contextlib.suppress(OSError, ValueError):
            bound = int(Path(top).read_text())
            if 0 < bound < limit or not limit:
                limit = bound
                free = min(free, max(0, bound - int(Path(used).read_text())))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limit, free = min(limit, soft), min(free, soft)
    return limit, free


def compute_memory_limit() -> int:
    """Return the memory for one process, so that nothing else in the container is killed."""
    limit, free = measure_container_memory()
    return int(SHARE * min(limit, free)) or 1 << 30


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


#: Prefix of a result in the output of a command.
RESULT = "BUILDMATRIX_RESULT "


def main() -> None:
    """Repeat the command until one run fails, and report each."""
    request = read_options()
    command: list[str] = request["command"]

    def execute(emit: Emit) -> None:
        # This program is replaced by the command, whose exit code shows its end.
        emit(done=True)
        os.execvp(command[0], command)  # noqa: S606 - the user's own

    for number in range(request["times"]):
        began = time.monotonic()
        ended = run(execute, request["seconds"], compute_memory_limit())
        seconds = time.monotonic() - began
        results = [line for line in ended.output.splitlines() if line.startswith(RESULT)]
        state = "failed" if ended.why else "passed"
        result = results[-1] if results else ""
        report(str(number), state, ended.account, seconds, result=result)
        if ended.why:
            return


if __name__ == "__main__":
    main()
