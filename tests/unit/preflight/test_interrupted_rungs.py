"""Ctrl-C while a command of a rung hangs in a sandbox that really runs, and its flood of output."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from buildmatrix.engines.oci.sandboxes import OUTPUT, of_this_machine, run, usable
from buildmatrix.engines.oci.unpacking import Identity
from buildmatrix.matrix.model import RUNGS

#: Seconds until a test that waits for ever fails; every command here may take longer.
PATIENCE = 240
#: Climbs to the rungs that it is told, with an engine whose commands all hang.
CLIMBER = '''
import json, signal, sys
from contextlib import contextmanager
from buildmatrix.base.data import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from buildmatrix.preflight import run as ladder
from buildmatrix.preflight.timed_rungs import run_batch
from buildmatrix.preflight.subject import Subject
from buildmatrix.engines.model import NO_DEVICES, Facilities, ImageFacts
from buildmatrix.engines.oci import sandboxes
from buildmatrix.engines.oci.unpacking import Identity
from buildmatrix.base.errors import Interrupted
from buildmatrix.base.progress import Silent
from buildmatrix.reports.preflight import Check
from buildmatrix.matrix.model import bare_spec, bare_target
from buildmatrix.matrix.model import Position, Smoke

signals, mark = sys.argv[1:]
program, _ = sandboxes.usable()
#: Says that it has begun, and each time that it is asked to end, which it does not do.
HANGS = f"""
trap 'echo asked >/signals/said' INT TERM HUP
echo begun >/signals/said
while :; do sleep {mark} & wait; done
"""


class Engine:
    def cannot_run(self, reference): return None
    def facilities(self): return Facilities()
    @contextmanager
    def runner(self, reference, devices=NO_DEVICES): yield hang


def hang(command, timeout_s):
    with TemporaryDirectory() as folder:
        root, own = Path(folder, "root"), Path(folder, "own")
        root.mkdir(mode=0o755)
        own.mkdir()
        (root / "signals").mkdir()
        job = sandboxes.of_this_machine(root, Identity(10001, 10002), ("/bin/sh", "-c", HANGS))
        shown = {**job.folders, "/signals": Path(signals)}
        job = replace(job, folders=shown, environment={"PATH": "/bin:/usr/bin"})
        return sandboxes.run(program, job, own, timeout_s, lambda: False)


# A job in the background of a shell ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
real = dict(ladder.RUNNERS)
smoke = Smoke("warmup", "batch", ("warmup",), 600.0, Position(Path("x"), 1, 1))
real["batch"] = lambda climb: (run_batch([smoke], climb.run, 5, {}), "")
target = bare_target("acme:1", "cpu")
image = ImageFacts("sha256:1", {}, {}, 1, "")
subject = Subject(target, bare_spec(target), Engine(), "acme:1", image)
for line in sys.stdin:
    rung = line.strip()
    passes = lambda climb: ((Check("below", "passed"),), "")
    ladder.RUNNERS = {name: real[name] if name == rung else passes for name in real}
    try:
        ladder.preflight([subject], rung, None, Silent(), date(2026, 11, 23))
        said = "it went on"
    except (KeyboardInterrupt, Interrupted):
        said = "interrupted"
    print(json.dumps([rung, said]), flush=True)
'''


@dataclass(frozen=True)
class Climber:
    """A process that climbs, and where its commands say something."""

    process: subprocess.Popen[str]
    said: int
    mark: str

    def left(self) -> list[str]:
        """Command lines of its commands that still run."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue  # It has ended.
            # Its shell, and the program that this waits for.
            if Path(words[0]).name in ("sh", "sleep") and any(self.mark in word for word in words):
                lines.append(" ".join(words))
        return lines


@pytest.fixture(scope="module")
def climber(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Climber]:
    program, why = usable()
    assert program is not None, why
    folder = tmp_path_factory.mktemp("signals")
    folder.chmod(0o755)
    os.mkfifo(folder / "said")
    (folder / "said").chmod(0o666)
    said = os.open(folder / "said", os.O_RDWR | os.O_NONBLOCK)
    mark = f"6{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", CLIMBER, str(folder), mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Climber(process, said, mark)
        process.kill()
    os.close(said)


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "static"])
def test_ctrl_c_ends_a_rung_whose_command_hangs(climber: Climber, rung: str) -> None:
    process = climber.process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{rung}\n")
    process.stdin.flush()
    ready, _, _ = select.select([climber.said, process.stdout], [], [], PATIENCE)
    assert ready == [climber.said], process.poll()
    assert os.read(climber.said, 100) == b"begun\n"
    assert climber.left()
    process.send_signal(signal.SIGINT)
    assert select.select([process.stdout], [], [], PATIENCE)[0]
    assert json.loads(process.stdout.readline()) == [rung, "interrupted"]
    until = time.monotonic() + PATIENCE
    while climber.left() and time.monotonic() < until:
        time.sleep(0.01)  # What was killed may take a moment to be gone.
    assert climber.left() == []
    # Nobody asked it to end, and waited for that.
    with pytest.raises(BlockingIOError):
        os.read(climber.said, 100)


def test_a_flood_is_read_to_its_end_and_its_end_is_kept(tmp_path: Path) -> None:
    program, why = usable()
    assert program is not None, why
    (tmp_path / "root").mkdir()
    (tmp_path / "own").mkdir()
    flood = ("/bin/sh", "-c", "head -c 10000000 /dev/zero; echo the end")
    confined = of_this_machine(tmp_path / "root", Identity(10001, 10002), flood)
    result = run(program, confined, tmp_path / "own", PATIENCE, lambda: False)
    assert (result.exit_code, result.timed_out) == (0, False)
    assert len(result.output) <= 4 * OUTPUT and result.output.rstrip().endswith("the end")
