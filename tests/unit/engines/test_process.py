"""Programs end with everything that they started, whatever ends them. Real programs, no engine."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

import buildmatrix
from buildmatrix.base import child
from buildmatrix.base.errors import Interrupted
from buildmatrix.engines import process
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.process import Processes, Watch
from buildmatrix.locks.uv import _make_environment as uv_environment


def until(condition: Callable[[], bool], seconds: float = 300) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def drain(stream: IO[bytes]) -> None:
    for _ in stream:
        pass


def shell(processes: Processes, folder: Path, script: str) -> int:
    return processes.follow(["sh", "-c", script], os.environ, folder, drain)


def test_the_exit_status_and_standard_error_come_back(tmp_path: Path) -> None:
    seen: list[bytes] = []
    status = Processes().follow(
        ["sh", "-c", "echo out; echo err >&2; exit 3"],
        os.environ,
        tmp_path,
        seen.extend,
    )

    assert (status, seen) == (3, [b"err\n"])


@pytest.mark.parametrize("trap", ["", "trap '' INT;"], ids=["obedient", "deaf"])
def test_cancel_ends_the_program_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(process, "GRACE", 0.5)
    processes = Processes()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            shell(processes, tmp_path, f"{trap} sleep 60 & echo $! >child; wait; sleep 60")
        except Interrupted as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    child = tmp_path / "child"
    assert until(lambda: child.is_file() and child.read_text().endswith("\n"))

    processes.cancel()
    thread.join(300)

    assert not thread.is_alive()
    assert len(raised) == 1
    assert until(lambda: not alive(int(child.read_text())))


def test_nothing_starts_after_cancel(tmp_path: Path) -> None:
    processes = Processes()
    processes.cancel()

    with pytest.raises(Interrupted):
        shell(processes, tmp_path, "touch started")
    assert not (tmp_path / "started").exists()


def test_a_reader_that_fails_leaves_no_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shell that is just starting the next program may miss the first signal.
    monkeypatch.setattr(process, "GRACE", 0.5)

    def read(stream: IO[bytes]) -> None:
        stream.readline()
        raise OSError("the log cannot be written")

    with pytest.raises(OSError, match="the log"):
        Processes().follow(
            ["sh", "-c", "echo $$ >pid; echo >&2; sleep 60"], os.environ, tmp_path, read
        )
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "program",
    [
        "while :; do echo tick >&2 || exit 1; sleep 0.05; done",
        pytest.param(
            "exec sleep 60",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="needs prctl(2)"),
        ),
    ],
    ids=["reporting", "silent"],
)
def test_a_program_ends_when_we_are_killed_outright(tmp_path: Path, program: str) -> None:
    script = """
import os, sys
from pathlib import Path
from buildmatrix.engines.process import Processes
loop = "echo $$ >pid; " + sys.argv[2]
Processes().follow(["sh", "-c", loop], os.environ, Path(sys.argv[1]), lambda s: [None for _ in s])
"""
    ours = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), program])
    pid = tmp_path / "pid"
    assert until(lambda: pid.is_file() and pid.read_text().endswith("\n"))

    ours.kill()
    ours.wait()

    assert until(lambda: not alive(int(pid.read_text())))


def watched(folder: Path, script: str, watch: Watch) -> int:
    def read(stream: IO[bytes]) -> None:
        for _ in stream:
            watch.heard()

    return Processes().follow(["sh", "-c", script], os.environ, folder, read, watch)


def test_a_silent_program_whose_other_end_does_not_answer_is_ended(tmp_path: Path) -> None:
    watch = Watch(0.1, lambda: False)
    assert watched(tmp_path, "exec sleep 60", watch) != 0
    assert watch.gave_up


def test_a_silent_program_whose_other_end_answers_goes_on(tmp_path: Path) -> None:
    asked = threading.Semaphore(0)

    def answers() -> bool:
        asked.release()
        (tmp_path / "asked").touch()
        return True

    watch = Watch(0.1, answers)
    script = "while ! test -e asked; do sleep 0.02; done; sleep 0.3; exit 7"
    assert watched(tmp_path, script, watch) == 7
    assert asked.acquire(timeout=300)
    assert not watch.gave_up


def test_a_program_that_speaks_while_its_other_end_is_asked_goes_on(tmp_path: Path) -> None:
    watch: Watch
    asked, again = tmp_path / "asked", tmp_path / "again"

    def answers() -> bool:
        if asked.exists():
            again.touch()
            return True
        before = watch._heard
        asked.touch()
        assert until(lambda: watch._heard > before)
        return False

    watch = Watch(0.1, answers)
    script = """
        while ! test -e asked; do sleep 0.02; done
        echo word >&2
        while ! test -e again; do sleep 0.02; done
        exit 7
    """
    assert watched(tmp_path, script, watch) == 7
    assert not watch.gave_up


STARTERS = {"run", "Popen", "check_output", "check_call", "call"}
SOURCES = sorted(Path(buildmatrix.__file__).parent.rglob("*.py"))


def test_every_program_gets_variables_that_we_chose() -> None:
    """A call without `env` hands on all that this process has: passwords, tokens of the job."""
    found = [
        (path, call)
        for path in SOURCES
        if b"subprocess" in (source := path.read_bytes())
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in STARTERS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "subprocess"
    ]
    assert len(found) > 10
    bare = [
        f"{path}:{call.lineno}"
        for path, call in found
        if not any(keyword.arg == "env" for keyword in call.keywords)
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("name", "is_bare", "is_network", "is_users"),
    [
        ("COSIGN_PASSWORD", False, False, False),
        ("COSIGN_PKCS11_PIN", False, False, False),
        ("SIGSTORE_ID_TOKEN", False, False, False),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", False, False, False),
        ("ACTIONS_RUNTIME_TOKEN", False, False, True),  # caches of buildx
        ("UV_INDEX_CORP_PASSWORD", False, False, True),
        ("DOCKER_AUTH_CONFIG", False, False, True),
        ("https_proxy", False, True, True),
        ("SSL_CERT_FILE", False, True, True),
        ("HOME", True, True, True),
    ],
)
def test_a_program_gets_what_it_needs(
    name: str, is_bare: bool, is_network: bool, is_users: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "planted")
    assert (name in child.bare_environment()) is is_bare
    assert (name in child.bare_environment(with_network=True)) is is_network
    assert (name in child.user_environment()) is is_users
    assert (name in uv_environment()) is is_users
    assert (name in DockerEngine()._environment) is is_users
    assert (name in child.git_environment()) is is_bare
