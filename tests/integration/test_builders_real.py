"""Several builders, for real: buildx's driver `remote`, and BuildKit behind two relays.

Debian has no package of buildkitd, and its image is on no mirror of ours, so both builders are
the BuildKit inside one Docker daemon: each relay asks it for the connection that the daemon
gives its own clients (`POST /grpc`, `Upgrade: h2c`), and passes bytes. A relay that ends is what a
builder that dies looks like to buildx.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Buildmatrix, Run

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
#: The name of a step: a relay that is to end sees it when the builder begins it.
STEP = b"COPY --from=build /opt/venv"
#: The same of what a builder does with an image that is done, before it sends it to a registry.
EXPORT = b"exporting to image"
VARIANTS = ("one", "two", "three")
#: A small image without a Python, and a distribution that is there by its metadata.
TEMPLATE = """\
{% extends "backend.Dockerfile.j2" %}
{% block build_tools %}
RUN echo RUN-{{ target.variant }} >/made \
    && mkdir -p /opt/venv/lib/python3.11/site-packages/idna-3.10.dist-info \
    && cd /opt/venv/lib/python3.11/site-packages/idna-3.10.dist-info \
    && printf 'Metadata-Version: 2.1\\nName: idna\\nVersion: 3.10\\n' >METADATA \
    && echo idna-3.10.dist-info/METADATA,, >RECORD
{% endblock %}
{% block install %}{% endblock %}
{% block python %}{% endblock %}
{% block account %}{% endblock %}
{% block app %}
COPY --from=build /opt/venv /opt/venv
COPY --from=build /made /made
{% endblock %}
"""
#: The registry that the mirror prefix leads to.
REGISTRY = os.environ.get("BUILDMATRIX_MIRROR", "localhost:5000/")


class Relay:
    """Listens on loopback, and passes bytes between buildx and BuildKit until it ends."""

    def __init__(self, daemon: str) -> None:
        self._daemon = daemon
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        #: The relay ends when these bytes come from the builder.
        self.ends_at: bytes | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        builder = socket.socket(socket.AF_UNIX)
        with self._lock:
            self._sockets += [client, builder]
        with suppress(OSError):
            builder.connect(self._daemon)
            builder.sendall(UPGRADE)
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):
                answer += builder.recv(1)
            assert b" 101 " in answer.splitlines()[0]
            threading.Thread(target=self._pass, args=(client, builder), daemon=True).start()
            self._pass(builder, client, watch=True)

    def _pass(self, source: socket.socket, to: socket.socket, *, watch: bool = False) -> None:
        seen = b""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                seen = (seen + data)[-len(data) - 200 :] if watch else b""
                if self.ends_at is not None and self.ends_at in seen:
                    self.end()
                    return
                to.sendall(data)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Break all connections, and take no more."""
        self.ended.set()
        with self._lock:
            for end in (self._listener, *self._sockets):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


@pytest.fixture
def relays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_base: str, containerd_host: str
) -> Iterator[tuple[dict[str, Relay], Path]]:
    """Two builders of buildx by their names, in a configuration of the test's own."""
    monkeypatch.setenv("DOCKER_HOST", containerd_host)
    monkeypatch.setenv("BUILDX_CONFIG", str(tmp_path / "buildx"))
    relays = {name: Relay(containerd_host.removeprefix("unix://")) for name in ("left", "right")}
    for name, relay in relays.items():
        create = ["docker", "buildx", "create", "--name", name, "--driver", "remote"]
        address = f"tcp://127.0.0.1:{relay.port}"
        subprocess.run([*create, address], check=True, capture_output=True)
    folder = tmp_path / "project"
    folder.mkdir()
    image = f"{REGISTRY}buildmatrix-test/{uuid.uuid4().hex[:12]}"
    (folder / "requirements.in").write_text("idna==3.10\n")
    # What is its own keeps the steps of other runs out of the builder's cache.
    template = TEMPLATE.replace("RUN-", f"{uuid.uuid4()}-")
    (folder / "small.Dockerfile.j2").write_text(template)
    (folder / "buildmatrix.toml").write_text(
        f"""schema = 1
[project]
name = "builders"
version = "1"
image = "{image}"
[defaults]
python = ["3.11"]
variant = {json.dumps(VARIANTS)}
requirements = ["requirements.in"]
env = {{ RUN = "{image}", VARIANT = "{{variant}}" }}
[backend.cpu]
runtime = "any"
base = "{small_base.removeprefix(REGISTRY)}"
template = "small.Dockerfile.j2"
[[smoke]]
name = "made"
level = "import"
command = ["cat", "/made"]
"""
    )
    yield relays, folder
    for relay in relays.values():
        relay.end()
    listed = subprocess.run(
        ["docker", "image", "ls", "--quiet", image], capture_output=True, text=True
    ).stdout.split()
    if listed:
        subprocess.run(["docker", "image", "rm", "--force", *listed], capture_output=True)


def substance(run: Run) -> Any:
    """A report without what differs from build to build: digests, times, who built."""
    report = run.report()
    for target in report["targets"]:
        for key in ("digest", "seconds", "cached", "builders", "log", "size"):
            target.pop(key, None)
        target["composition"].pop("layers")
    return report["targets"], report["findings"], report["distributions"]


def attempts(run: Run) -> list[tuple[str, ...]]:
    """The builders that each target had."""
    return [tuple(a["builder"] for a in t["builders"]) for t in run.report()["targets"]]


@pytest.mark.weekly  # test_two_daemons.py has a builder that ends in the middle of a build.
def test_two_remote_builders_behind_relays_of_which_one_ends_give_what_one_gives(
    relays: tuple[dict[str, Relay], Path], buildmatrix: Buildmatrix
) -> None:
    builders, folder = relays
    builders["left"].ends_at = STEP
    both = ("--builder", "left", "--builder", "right", "--jobs", "1", "--format", "json")
    run = buildmatrix(folder, "build", *both)

    assert run.code == 0, run.err
    assert builders["left"].ended.is_set()
    tried = attempts(run)
    assert sorted(tried, key=len)[-1] == ("left", "right")
    assert tried.count(("right",)) == len(VARIANTS) - 1
    (lost,) = [
        attempt["error"]
        for target in run.report()["targets"]
        for attempt in target["builders"]
        if attempt["builder"] == "left"
    ]
    assert "connection to the builder broke off" in lost
    for target in run.report()["targets"]:
        assert set(target["gates"].values()) == {"passed"}

    alone = buildmatrix(folder, "build", "--rebuild", "--format", "json")
    assert alone.code == 0, alone.err
    assert substance(alone) == substance(run)


@pytest.mark.weekly  # test_two_daemons.py shares targets, and goes on without a dead daemon.
def test_remote_builders_behind_relays_share_the_targets_and_a_silent_one_is_given_up(
    relays: tuple[dict[str, Relay], Path], buildmatrix: Buildmatrix
) -> None:
    builders, folder = relays
    both = ("--builder", "left", "--builder", "right", "--jobs", "1", "--format", "json")
    run = buildmatrix(folder, "build", *both, "--select", "*-one", "--select", "*-two")
    assert run.code == 0, run.err
    assert attempts(run) == [("left",), ("right",)]

    # It was built there, and so it goes there first.
    builders["left"].end()
    run = buildmatrix(folder, "build", *both, "--rebuild", "--select", "*-one")
    assert run.code == 0, run.err
    assert attempts(run) == [("left", "right")]
    assert "left failed, going on with right: the builder does not answer" in run.err


def published(run: Run) -> list[str | None]:
    """The digest that the first tag of each target has in the registry."""
    spec = "{{json .Manifest.Digest}}"
    asked = ["docker", "buildx", "imagetools", "inspect", "--format", spec]
    return [
        json.loads(answer.stdout) if answer.returncode == 0 else None
        for target in run.report()["targets"]
        for answer in [subprocess.run([*asked, target["image"]], capture_output=True, text=True)]
    ]


def test_what_builders_behind_relays_made_is_pushed_by_those_that_are_left(
    relays: tuple[dict[str, Relay], Path], buildmatrix: Buildmatrix
) -> None:
    builders, folder = relays
    # Images without smoke commands stay on the builder that made them.
    form = ("--no-smoke", "--jobs", "1", "--format", "json")
    both = ("--builder", "left", "--builder", "right", *form)
    run = buildmatrix(folder, "build", *both)
    assert run.code == 0, run.err
    assert {name for (name,) in attempts(run)} == {"left", "right"}

    # Nothing is to be built: it ends while what is to be pushed is compared with what was scanned.
    builders["left"].ends_at = EXPORT
    run = buildmatrix(folder, "build", *both, "--push")
    assert builders["left"].ended.is_set()
    assert (run.code, published(run)) == (5, [None] * len(VARIANTS)), run.err
    assert {target["cached"] for target in run.report()["targets"]} == {True}
    assert sorted(target["push"] for target in run.report()["targets"]) == [
        *["not-run"] * (len(VARIANTS) - 1),
        "undecided",
    ]
    assert "not pushed: the connection to the builder broke off" in run.err + run.out

    run = buildmatrix(folder, "build", "--builder", "right", *form, "--push")
    assert run.code == 0, run.err
    targets = run.report()["targets"]
    assert published(run) == [target["digest"] for target in targets]
    assert {target["push"] for target in targets} == {"passed"}
    built = [target for target in targets if not target["cached"]]
    assert 0 < len(built) < len(targets), "what the other builder had is built again, no more"


def test_a_builder_that_buildx_does_not_know_is_one_sentence(
    relays: tuple[dict[str, Relay], Path], buildmatrix: Buildmatrix
) -> None:
    _, folder = relays
    run = buildmatrix(folder, "build", "--builder", "right", "--builder", "nowhere")
    assert run.code == 2
    assert run.err.splitlines()[-1] == (
        "buildmatrix: there is no builder 'nowhere'; `docker buildx ls` lists those that exist"
    )
    assert not list(folder.glob(".buildmatrix/state/*/build.log"))
