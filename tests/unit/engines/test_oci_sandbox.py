"""What a command of an image sees of this machine: nothing but the image.

Each sandbox that works here runs programs of this machine, as the account 10001.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from buildmatrix.base.errors import Interrupted
from buildmatrix.engines.model import RunResult
from buildmatrix.engines.oci.confinement import Confined, Sandbox
from buildmatrix.engines.oci.sandboxes import (
    failure,
    of_this_machine,
    run,
    sandboxes,
    usable,
)
from buildmatrix.engines.oci.unpacking import Identity

SANDBOXES = [sandbox for sandbox in sandboxes() if failure(sandbox, math.inf) is None]


def test_this_machine_can_confine_commands() -> None:
    """As root that takes util-linux, without root bubblewrap: tests below say nothing without."""
    sandbox, text = usable()
    if sandbox is None and "CI" not in os.environ:
        pytest.skip(text)
    assert sandbox is not None, text


@pytest.fixture(params=SANDBOXES, ids=lambda sandbox: sandbox.name)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found: Sandbox = request.param
    return found


def shell(
    sandbox: Sandbox,
    folder: Path,
    script: str,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    (folder / "root").mkdir()
    (folder / "own").mkdir()
    confined = of_this_machine(folder / "root", Identity(10001, 10002), ("/bin/sh", "-c", script))
    confined = Confined(
        confined.root,
        confined.account,
        confined.command,
        {"HOME": "/tmp", "PATH": "/usr/bin", "GREETING": "hello $world"},
        "/usr",
        confined.folders,
    )
    return run(sandbox, confined, folder / "own", seconds, lambda: False, clock)


def test_account_environment_and_folder_are_the_images(sandbox: Sandbox, tmp_path: Path) -> None:
    result = shell(sandbox, tmp_path, 'id -u; id -g; pwd; echo "$GREETING"; env | sort')

    assert result.exit_code == 0, result.output
    uid, gid, folder, greeting, *variables = result.output.split("\n")
    assert (uid, gid, folder, greeting) == ("10001", "10002", "/usr", "hello $world")
    names = {line.partition("=")[0] for line in variables if line}
    assert names <= {"HOME", "PATH", "GREETING", "PWD", "OLDPWD", "_", "SHLVL", "container"}


def test_only_temporary_files_can_be_written(sandbox: Sandbox, tmp_path: Path) -> None:
    result = shell(
        sandbox,
        tmp_path,
        "for p in /file /usr/file /dev/file /proc/sys/kernel/hostname; do"
        " (echo x >$p) 2>/dev/null && echo wrote $p; done;"
        " echo x >/tmp/file && echo x >/dev/shm/file && echo x >/dev/null && echo fine",
    )

    assert result.output == "fine\n"
    assert not (tmp_path / "root/file").exists()


def test_there_is_no_network_and_no_other_process(sandbox: Sandbox, tmp_path: Path) -> None:
    result = shell(
        sandbox,
        tmp_path,
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; ls -d /proc/[0-9]* | wc -l;"
        " grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status",
    )

    interface, processes, *rest = result.output.split("\n")
    assert interface == "lo"
    assert int(processes) < 12
    zeros = "0000000000000000"
    assert rest[:3] == [f"CapPrm:\t{zeros}", f"CapEff:\t{zeros}", "NoNewPrivs:\t1"]


def test_a_failure_keeps_its_code_and_the_end_of_its_output(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    result = shell(sandbox, tmp_path, "seq 1000000; echo broken; exit 7")

    assert (result.exit_code, result.timed_out) == (7, False)
    assert result.output.endswith("999999\n1000000\nbroken\n")
    assert len(result.output) <= 1 << 20


def test_time_is_bounded_and_no_process_is_left(sandbox: Sandbox, tmp_path: Path) -> None:
    mark = f"{os.getpid()}{time.monotonic_ns()}"
    watched: list[int] = []

    def clock() -> float:
        """Return a time within the limit until all processes of the command run."""
        numbers = running(mark)
        if len(numbers) == 3 and not watched:
            watched.extend(map(os.pidfd_open, numbers))
        return math.inf if watched else 0.0

    script = f"(sleep {mark} &) ; setsid sleep {mark} & sleep {mark}"
    result = shell(sandbox, tmp_path, script, 1, clock)

    assert result.timed_out, result.output
    for process in watched:
        select.select([process], [], [])  # Returns when it has ended.
        os.close(process)


def running(mark: str) -> list[int]:
    """Processes that sleep for `mark` seconds."""
    numbers = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            numbers.append(int(path.parent.name))
    return numbers


def test_a_run_that_is_cancelled_ends_the_command(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "own").mkdir()
    command = ("/bin/sh", "-c", "sleep 60")
    confined = of_this_machine(tmp_path / "root", Identity(10001, 10001), command)

    with pytest.raises(Interrupted):
        run(sandbox, confined, tmp_path / "own", math.inf, lambda: True)
