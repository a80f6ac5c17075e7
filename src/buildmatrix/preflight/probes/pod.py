"""Run the commands of a plan in order, and print the results as JSON lines.

Runs inside a pod, by the image's Python, 3.8 or newer; standard library only, and nothing of
buildmatrix is in the image. `preflight.protocol` reads the output: a line that begins the run
and describes it, one line for each marked line of a probe, one line for the end of a command, and
one for the end of the run.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Bytes kept of other output of commands (the last ones); bytes of one line, and of all checks of a
#: command.
NOISE, LONGEST, MOST = 16 << 10, 64 << 10, 1 << 20
#: Seconds to wait for the pods of other nodes, and the port of the first one.
WAITING, PORT = 1500, int(os.environ.get("BUILDMATRIX_PORT", "29499"))
RUN = secrets.token_hex(6)
NUMBERS = itertools.count()
FOLDER = Path(sys.argv[1])
PLAN = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))


def say(kind: str, **fields: object) -> None:
    """Print one line at once: the process may end at any time."""
    text = json.dumps({"buildmatrix": kind, "run": RUN, "line": next(NUMBERS), **fields})
    rest = text.encode() + b"\n"
    while rest:
        rest = rest[os.write(1, rest) :]


class Stopped:
    """Signal that ended the pod, and its time: the node is drained, or the job's time is over."""

    number, since, is_reading = 0, 0.0, False


def stop(number: int, _: object) -> None:
    """Record the signal while a command is read, so that its output is not lost; else end."""
    Stopped.number, Stopped.since = number, time.monotonic()
    if not Stopped.is_reading:
        end_pod()


def end_pod() -> None:
    """Report the signal that ended this pod, and end."""
    say("stopped", signal=signal.Signals(Stopped.number).name)
    kill_remaining()
    os._exit(128 + Stopped.number)


def kill_remaining() -> None:
    """Kill processes left by commands: in a container, all but this one."""
    if os.getpid() == 1:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(OSError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run(number: int, step: dict) -> None:  # type: ignore[type-arg]
    """Run one command to its end, in a home folder of its own, so that no cache is warm."""
    mark = "@@buildmatrix-" + secrets.token_hex(8) + "@@"
    # Long words are in files of their own.
    words = (
        word if isinstance(word, str) else (FOLDER / word["file"]).read_text(encoding="utf-8")
        for word in step["command"]
    )
    line = [word.replace(PLAN["mark"], mark) for word in words]
    home = tempfile.mkdtemp()
    Stopped.is_reading = True
    began = time.monotonic()
    reader = Reader(number, mark.encode())
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, HOME=home, TMPDIR=home),
            start_new_session=True,
        )
    except OSError as error:
        Stopped.is_reading = False
        shutil.rmtree(home, ignore_errors=True)
        say("exit", step=number, code=127, seconds=0.0, timed_out=False, noise=str(error))
        return
    timed_out = reader.read(process, began + step["seconds"])
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if Stopped.number:
        end_pod()
    Stopped.is_reading = False
    code = process.wait()
    kill_remaining()
    shutil.rmtree(home, ignore_errors=True)
    say(
        "exit",
        step=number,
        code=code if code >= 0 else 128 - code,
        seconds=round(time.monotonic() - began, 3),
        timed_out=timed_out,
        noise=reader.noise.decode("utf-8", "replace"),
        dropped=reader.dropped,
    )


class Reader:
    """Reader of a command's output: checks are passed on at once; of the rest, the end is kept."""

    def __init__(self, number: int, mark: bytes) -> None:
        self.number, self.mark = number, mark
        self.noise, self.rest, self.dropped, self.said = b"", b"", 0, 0

    def read(self, process: subprocess.Popen, deadline: float) -> bool:  # type: ignore[type-arg]
        """Read until the command ends or its time is over; return True for a timeout."""
        output = process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if Stopped.number and time.monotonic() > Stopped.since + 1:
                    break
                # A remaining child may keep the pipe open.
                if not selector.select(0.2):
                    if Stopped.number or process.poll() is not None:
                        break
                    continue
                chunk = os.read(output.fileno(), 1 << 16)
                if not chunk:
                    break
                self.take(chunk)
        self.line(self.rest)
        if Stopped.number:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        return process.poll() is None

    def take(self, chunk: bytes) -> None:
        """Split output into lines; of a line without an end, the beginning is enough."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            self.line(line)
        if len(self.rest) > 2 * LONGEST:
            self.rest = self.rest[:LONGEST] + self.rest[-1000:]

    def line(self, line: bytes) -> None:
        """Pass on a check; keep the end of other output."""
        _, mark, text = line.partition(self.mark)
        if not mark:
            self.noise = (self.noise + line + b"\n")[-NOISE:] if line else self.noise
        elif self.said + len(text) > MOST:
            self.dropped += 1
        else:
            self.said += len(text)
            say("check", step=self.number, text=text[:LONGEST].decode("utf-8", "replace"))


def meet(first: str, nodes: int, rank: int) -> None:
    """Wait for the pods of all nodes: some may have to pull the image first."""
    end = time.monotonic() + WAITING
    if rank == 0:
        with socket.create_server(("", PORT), backlog=nodes) as server:
            others: list = []  # type: ignore[type-arg]
            while len(others) < nodes - 1:
                server.settimeout(max(0.1, end - time.monotonic()))
                others.append(server.accept()[0])
            for other in others:
                other.close()
        return
    while True:
        try:
            with socket.create_connection((first, PORT), 10) as connection:
                connection.settimeout(max(0.1, end - time.monotonic()))
                connection.recv(1)
                return
        except OSError as error:
            # Its name does not exist yet, or it does not listen yet.
            if time.monotonic() > end:
                raise TimeoutError(str(error)) from error
            time.sleep(1)


def main() -> None:
    """Run the plan."""
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    steps = PLAN["steps"]
    listed = [{"rung": step["rung"], "key": step["key"]} for step in steps]
    where = {name: os.environ.get(f"BUILDMATRIX_{name.upper()}", "") for name in ("node", "pod")}
    about = {name: PLAN[name] for name in ("schema", *PLAN["about"])}
    say("begin", **about, **where, steps=listed)
    if PLAN["nodes"] > 1:
        try:
            meet(
                os.environ["BUILDMATRIX_FIRST"], PLAN["nodes"], int(os.environ["BUILDMATRIX_RANK"])
            )
        except OSError as error:
            say("stopped", signal="waiting for the pods of the other nodes: " + str(error))
            return
    for number, step in enumerate(steps):
        run(number, step)
    say("end")


main()
