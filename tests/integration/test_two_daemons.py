"""Two Docker daemons share the targets: the one of this machine, and one of another context.

The second is a real dockerd with a containerd and data of its own. A build step waits at a gate of
the test's, so that what happens to a daemon happens in the middle of a build.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from components import missing
from conftest import Buildmatrix, Run
from scripts.stack import engine as stack_engine
from scripts.stack.layout import Layout
from scripts.stack.process import State

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

HERE, THERE = "default", "rack"
VARIANTS = ("one", "two", "three")
PATIENCE = 120
BOTH = ("--builder", HERE, "--builder", THERE, "--jobs", "1", "--no-smoke", "--format", "json")
TEMPLATE = """\
{% extends "backend.Dockerfile.j2" %}
{% block build_tools %}
ENV VARIANT={{ target.variant }}
RUN python3 -c "import socket as s; s.create_connection(ADDRESS).recv(1)"; echo RUN-$VARIANT >/made
{% endblock %}
{% block install %}{% endblock %}
{% block final %}
FROM scratch AS final
COPY --from=build /made /made
{% endblock %}
{% block python %}{% endblock %}
{% block account %}{% endblock %}
{% block app %}{% endblock %}
"""


class Gate:
    """Where build steps wait until it is opened; says how many do."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._waiting: list[socket.socket] = []
        self._changed = threading.Condition()
        self._is_open = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                step, _ = self._listener.accept()
                with self._changed:
                    self._waiting.append(step)
                    self._changed.notify_all()
                    if self._is_open:
                        step.close()

    def wait_for(self, steps: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self._waiting) >= steps, PATIENCE)

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            for step in self._waiting:
                step.close()

    def close(self) -> None:
        self.open()
        self._listener.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.close()


@dataclass
class OtherDaemon:
    """The daemon of the context `rack`."""

    layout: Layout

    def signal(self, number: int) -> None:
        """Send a signal to dockerd alone."""
        os.kill(State(self.layout.state).read()[stack_engine.NAME].pid, number)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the other daemon keeps: the base images, from test to test."""
    folder = tmp_path_factory.mktemp("daemon")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def other(data: Path) -> Iterator[OtherDaemon]:
    layout = Layout.of_environment()
    if os.geteuid() != 0 or not (layout.prefix / "usr/sbin/dockerd").is_file():
        missing("a second Docker daemon", "run `python3 -m scripts.stack up` as root on Debian")
    with stack_engine.beside(layout, data) as started:
        yield OtherDaemon(started)


@pytest.fixture
def project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: Gate,
    containerd_host: str,
    other: OtherDaemon,
) -> Iterator[Path]:
    """A matrix whose build steps wait at the gate, and a context for the other daemon.

    Both daemons have containerd's store: the older one has digests of its own for local bases.
    """
    monkeypatch.setenv("DOCKER_HOST", containerd_host)
    config = tmp_path / "config"
    config.mkdir()
    plugins = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"), "cli-plugins")
    (config / "cli-plugins").symlink_to(plugins)
    monkeypatch.setenv("DOCKER_CONFIG", str(config))
    endpoint = f"host={other.layout.docker_host}"
    subprocess.run(
        ["docker", "context", "create", THERE, "--docker", endpoint],
        check=True,
        capture_output=True,
    )
    folder = tmp_path / "project"
    folder.mkdir()
    mirror = os.environ.get("BUILDMATRIX_MIRROR", "localhost:5000/")
    image = f"{mirror}buildmatrix-test/{uuid.uuid4().hex[:12]}"
    (folder / "base.in").touch()
    template = TEMPLATE.replace("ADDRESS", repr(gate.address)).replace("RUN-", f"{uuid.uuid4()}-")
    (folder / "waiting.Dockerfile.j2").write_text(template)
    (folder / "buildmatrix.toml").write_text(
        f"""schema = 1
[project]
name = "daemons"
version = "1"
image = "{image}"
[defaults]
python = ["3.11"]
variant = {json.dumps(VARIANTS)}
requirements = ["base.in"]
[backend.cpu]
runtime = "any"
base = "python:{{python}}-slim-bookworm"
template = "waiting.Dockerfile.j2"
"""
    )
    yield folder
    names = subprocess.run(
        ["docker", "image", "ls", "--quiet", image], capture_output=True, text=True
    ).stdout.split()
    if names:
        subprocess.run(["docker", "image", "rm", "--force", *names], capture_output=True)


@pytest.fixture
def run(buildmatrix: Buildmatrix, project: Path) -> Callable[..., Run]:
    """`build` in the project."""
    return lambda *options, **more: buildmatrix(project, "build", *options, **more)


def in_the_middle(
    run: Callable[..., Run], gate: Gate, act: Callable[[], None], *options: str
) -> Run:
    """A run on both daemons, with `act` when each of them is in the middle of a build."""
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(run(*BOTH, *options)))
    thread.start()
    try:
        both_wait = gate.wait_for(2)
        act()
    finally:
        gate.open()
        thread.join(4 * PATIENCE)
    assert both_wait, runs[0].err
    return runs[0]


def builders(run: Run) -> list[tuple[str, ...]]:
    """Those that each target had."""
    return [tuple(a["builder"] for a in t["builders"]) for t in run.report()["targets"]]


def errors(run: Run) -> list[str]:
    """Why builders failed."""
    attempts = (a for target in run.report()["targets"] for a in target["builders"])
    return [attempt["error"] for attempt in attempts if attempt["error"]]


def substance(run: Run) -> Any:
    """A report without what differs from build to build: times, digests, who built."""
    report = run.report()
    for target in report["targets"]:
        for key in ("digest", "seconds", "cached", "builders", "log"):
            target.pop(key, None)
        target["composition"].pop("layers", None)
    return report["targets"], report["findings"], report["distributions"]


def images(*docker: str) -> set[str]:
    """The names of the images of a daemon."""
    command = ["docker", *docker, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_two_daemons_share_the_targets_and_this_machine_has_the_images(
    run: Callable[..., Run], gate: Gate, other: OtherDaemon
) -> None:
    shared = in_the_middle(run, gate, lambda: None)
    assert shared.code == 0, shared.err
    assert {name for (name,) in builders(shared)} == {HERE, THERE}
    names = {target["image"] for target in shared.report()["targets"]}
    assert len(names) == len(VARIANTS)
    assert names <= images()
    assert not images(f"--host={other.layout.docker_host}")

    again = run(*BOTH)
    assert again.code == 0, again.err
    assert all(target["cached"] for target in again.report()["targets"])

    # The cache of the one that built a target is warm, so it goes there again. One target each:
    # whoever is done first takes what the other has waiting.
    homes = {t["builders"][0]["builder"]: t for t in shared.report()["targets"]}
    select = (f"--select={target['id']}" for target in homes.values())
    anew = run(*BOTH, "--rebuild", *select)
    assert anew.code == 0, anew.err
    for target in anew.report()["targets"]:
        (attempt,) = target["builders"]
        assert target["id"] == homes[attempt["builder"]]["id"]
        assert target["digest"] == homes[attempt["builder"]]["digest"]

    pushed = run(*BOTH, "--push")
    assert pushed.code == 0, pushed.err
    for target in pushed.report()["targets"]:
        ask = ["docker", "buildx", "imagetools", "inspect", target["image"]]
        spec = ("--format", "{{json .Manifest.Digest}}")
        answer = subprocess.run([*ask, *spec], capture_output=True, text=True, check=True)
        assert json.loads(answer.stdout) == target["digest"]
    assert not images(f"--host={other.layout.docker_host}"), "it was asked for what is here"

    # What is here needs no builder, whoever made it.
    still = run("--no-smoke", "--format", "json")
    assert still.code == 0, still.err
    assert all(target["cached"] for target in still.report()["targets"])

    alone = run("--rebuild", "--no-smoke", "--format", "json")
    assert alone.code == 0, alone.err
    assert substance(alone) == substance(shared)


# The test below has a daemon that is killed, test_docker_command.py a builder that hangs.
@pytest.mark.weekly
def test_a_daemon_that_hangs_is_given_up(
    run: Callable[..., Run], gate: Gate, other: OtherDaemon
) -> None:
    hung = in_the_middle(run, gate, lambda: other.signal(signal.SIGSTOP), "--builder-timeout", "8")
    # It is asked to end after this test, and has half a minute for that.
    other.signal(signal.SIGCONT)
    assert hung.code == 0, hung.err
    assert sorted(builders(hung), key=len) == [(HERE,), (HERE,), (THERE, HERE)]
    (error,) = errors(hung)
    assert "the builder hangs: no word from it for 8 s" in error


def test_a_daemon_that_is_killed_costs_its_target_one_retry(
    run: Callable[..., Run], gate: Gate, other: OtherDaemon
) -> None:
    killed = in_the_middle(run, gate, lambda: other.signal(signal.SIGKILL))
    assert killed.code == 0, killed.err
    assert sorted(builders(killed), key=len) == [(HERE,), (HERE,), (THERE, HERE)]
    (error,) = errors(killed)
    assert "connection to the builder broke off" in error
    assert f"builder {THERE} failed, going on with {HERE}: {error}" in killed.err

    # It is still dead: said before anything is built, which the other one does.
    without = run(*BOTH, "--rebuild")
    assert without.code == 0, without.err
    assert builders(without) == [(HERE,)] * len(VARIANTS)
    assert (
        f"builder {THERE} failed, going on with {HERE}: the Docker daemon does not" in without.err
    )
    assert substance(without) == substance(killed)

    nobody = run(*BOTH, "--rebuild", env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert (nobody.code, nobody.out) == (5, "")
    sentences = nobody.err.splitlines()[-3:]
    assert sentences[0] == "buildmatrix: no builder can be used:"
    assert "does not answer at unix:///nowhere/docker.sock" in sentences[1]
    assert f"does not answer at {other.layout.docker_host}" in sentences[2]
