"""Devices of this machine in containers of a real daemon: nodes, their groups, and CDI."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.model import DeviceAccess, RunResult

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine", "image")]

IMAGE = f"{os.environ.get('BUILDMATRIX_MIRROR', '')}python:3.11-slim-bookworm"
KIND = f"test.buildmatrix.dev/null{os.getpid()}"


def run(devices: DeviceAccess, script: str) -> RunResult:
    with DockerEngine().runner(IMAGE, devices) as start:
        return start(("sh", "-c", script), 300)


@pytest.fixture(scope="module")
def image(engine: None) -> None:
    """An image on the daemon, which may be new: a runner takes what is there, and pulls nothing."""
    subprocess.run(["docker", "pull", "-q", IMAGE], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def node() -> Iterator[str]:
    """`/dev/null` by another name, for a group that no image has."""
    path = Path(f"/dev/buildmatrix-engine-{os.getpid()}")
    os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(1, 3))
    path.chmod(0o660)
    os.chown(path, 0, 4711)
    yield str(path)
    path.unlink()


@pytest.fixture
def described() -> Iterator[str]:
    """A CDI device that is `/dev/null` by another name."""
    folder = Path("/var/run/cdi")
    folder.mkdir(exist_ok=True)
    edits = {"deviceNodes": [{"path": "/dev/acme0", "hostPath": "/dev/null"}], "env": ["ACME=1"]}
    file = folder / f"buildmatrix-{os.getpid()}.json"
    device = {"name": "all", "containerEdits": edits}
    file.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": [device]}))
    yield f"{KIND}=all"
    file.unlink()


def test_a_container_has_the_node_and_the_group_and_nothing_more(node: str) -> None:
    devices = DeviceAccess((node,), (4711,))
    script = f"id -G; (echo x >{node}) && echo written; (touch /x) 2>&1; ls /sys/class/net"
    groups, written, write, network = run(devices, script).output.splitlines()
    assert "4711" in groups.split()
    assert (written, "Read-only" in write, network) == ("written", True, "lo")
    capabilities = run(devices, "grep CapEff /proc/self/status").output
    assert int(capabilities.split()[1], 16) == 0


def test_without_devices_a_container_has_none(node: str) -> None:
    assert run(DeviceAccess(), f"test ! -e {node}").exit_code == 0


def test_devices_that_are_not_there_start_nothing(node: str) -> None:
    gone = run(DeviceAccess((f"{node}-gone",)), "true")
    assert (gone.exit_code, "no such file" in gone.output) == (127, True)
    unknown = run(DeviceAccess(cdi=(f"{KIND}=7",)), "true")
    assert (unknown.exit_code, KIND in unknown.output) == (127, True)


def test_the_daemon_reads_the_description_of_a_device(described: str) -> None:
    result = run(DeviceAccess(cdi=(described,)), "test -c /dev/acme0 && echo $ACME")
    facilities = DockerEngine().facilities()
    assert (result.exit_code, result.output) == (0, "1\n"), (facilities, result.output)
