"""A scheduler and workers that were started elsewhere, as docs/clusters.md has it.

Each process has a folder and an environment of its own, and TLS between them. What holds a login
is a helper, a file that a variable names, or nothing.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from document_blocks import ROOT, blocks_of
from layer_archives import tar
from registry import RegistryServer
from served_images import put_image

COMMANDS, CERTIFICATE, SETTINGS = (
    block.text
    for block in blocks_of(ROOT / "docs/clusters.md")
    if block.marker == "checked by tests/integration/test_fleet_separate.py"
)
LOGIN = ("ann", "hunter2-of-the-registry")
IMAGES, LATE = 24, 6
#: Seconds until a test that waits for ever fails.
PATIENCE = 600
HELPER = """#!/bin/sh
echo '{"Username": "%s", "Secret": "%s"}'
"""


def replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    library = tar([("usr/lib/libx.so", Path("/bin/true").read_bytes())])
    with RegistryServer(auth="basic", login=LOGIN) as server:
        for number in range(IMAGES):
            layers = [library, tar([(f"app/{number}", b"%d" % number)])]
            put_image(server, "team/app", f"v{number}", layers)
        # What nobody has read when only those are left that may not.
        for number in range(LATE):
            layers = [library, tar([(f"late/{number}", b"%d" % number)])]
            put_image(server, "team/late", f"v{number}", layers)
        yield server


class Machines:
    """Machines that share one folder, each with a home of its own."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        (self.shared / "dask").mkdir(parents=True)
        here = {"/shared/fleet": str(self.shared)}
        subprocess.run(["sh", "-ec", replaced(CERTIFICATE, here)], check=True, capture_output=True)
        (self.shared / "dask/tls.yaml").write_text(replaced(SETTINGS, here))
        self.host = host

    def home(self, name: str) -> tuple[Path, dict[str, str]]:
        """Its folder, and an environment with nothing of that of the test."""
        home = self.folder / name
        (home / "bin").mkdir(parents=True, exist_ok=True)
        programs = Path(sys.executable).parent
        environment = {
            "HOME": str(home),
            "PATH": f"{home}/bin:{programs}:{os.environ['PATH']}",
            "DASK_CONFIG": str(self.shared / "dask"),
            "BUILDMATRIX_CACHE": str(home / "cache"),
        }
        return home, environment

    def file(self, name: str) -> dict[str, str]:
        """Has a login in a file that a variable names."""
        login = base64.b64encode(":".join(LOGIN).encode()).decode()
        path = self.home(name)[0] / "logins.json"
        path.write_text(json.dumps({"auths": {self.host: {"auth": login}}}))
        return {"REGISTRY_AUTH_FILE": str(path)}

    def helper(self, name: str) -> dict[str, str]:
        """Has a login in a helper."""
        home, _ = self.home(name)
        helper = home / "bin/docker-credential-test"
        helper.write_text(HELPER % LOGIN)
        helper.chmod(0o755)
        (home / ".docker").mkdir()
        helpers = {"credHelpers": {self.host: "test"}}
        (home / ".docker/config.json").write_text(json.dumps(helpers))
        return {}

    @contextmanager
    def process(
        self, name: str, line: str, until: str, more: Mapping[str, str] | None = None
    ) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """A command on that machine, and what its log has behind the text `until`."""
        home, environment = self.home(name)
        log = home / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                shlex.split(line),
                cwd=home,
                env={**environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            end = time.monotonic() + PATIENCE
            while until not in (text := log.read_text()):
                assert process.poll() is None and time.monotonic() < end, text
                time.sleep(0.05)
            yield process, text.partition(until)[2].split()[0]
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def scan(self, scheduler: str, name: str) -> subprocess.CompletedProcess[str]:
        """The documented command, where a variable names the file with the login."""
        home, environment = self.home("client")
        line = replaced(
            COMMANDS.splitlines()[2],
            {
                "registry.example.com/*": f"{self.host}/team/{name}",
                "tcp://scheduler:8786": scheduler,
                "/shared/facts": str(self.shared / "facts"),
            },
        )
        return subprocess.run(
            [*shlex.split(line), "--format", "table", "--format", f"json={name}.json"],
            cwd=home,
            env=environment | self.file("client"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def report(self, name: str) -> dict:
        return json.loads((self.folder / f"client/{name}.json").read_text())


def holds(process: subprocess.Popen[bytes], *texts: str) -> bool:
    """Whether the memory of a process has one of these texts."""
    return any(_holds(process.pid, text.encode()) for text in texts)


def _holds(pid: int, text: bytes) -> bool:
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, rights, *_ = line.split()
            start, end = (int(number, 16) for number in addresses.split("-"))
            if not rights.startswith("rw"):
                continue
            try:
                memory.seek(start)
                if text in memory.read(end - start):
                    return True
            except OSError:
                continue  # Pages of a device.
    return False


@pytest.fixture(scope="module")
def machines(server: RegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    return Machines(tmp_path_factory.mktemp("machines"), server.host)


#: A scheduler, and its address.
Head = tuple[subprocess.Popen[bytes], str]


@pytest.fixture(scope="module")
def head(machines: Machines) -> Iterator[Head]:
    """As the page has it for TLS; and where nobody else listens."""
    here = "--host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0"
    line = f"{COMMANDS.splitlines()[0]} --protocol tls {here}"
    with machines.process("head", line, "Scheduler at:") as started:
        yield started


def test_workers_without_a_login_are_named_and_no_secret_travels(
    server: RegistryServer, machines: Machines, head: Head
) -> None:
    scheduler, address = head
    _, start_worker, _ = COMMANDS.splitlines()
    secrets = LOGIN[1], base64.b64encode(":".join(LOGIN).encode()).decode()
    joined = "Start worker at:"
    assert address.startswith("tls://127.0.0.1:")
    start_worker = replaced(
        start_worker,
        # A nanny would be one more process for each.
        {"tcp://scheduler:8786": address, "--nworkers 8": "--no-nanny"},
    )
    with machines.process("bare", start_worker, joined) as (bare, name):
        helper, file = machines.helper("helped"), machines.file("filed")
        with (
            machines.process("helped", start_worker, joined, helper) as (helped, _),
            machines.process("filed", start_worker, joined, file) as (filed, _),
        ):
            done = machines.scan(address, "app")
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"Passed: all of {IMAGES} images" in done.stdout
            note = f"{server.host} refused team/app to the worker {name}; others were given it"
            (said,) = machines.report("app")["notes"]
            assert said.startswith(note)
            assert holds(helped, *secrets) or holds(filed, *secrets), "it would be seen"
        done = machines.scan(address, "late")
        assert not holds(scheduler, *secrets) and not holds(bare, *secrets)
    assert done.returncode == 3, done.stdout + done.stderr
    report = machines.report("late")
    assert {result["state"] for result in report["results"]} == {"undecided"}
    assert len(report["results"]) == LATE
    for result in report["results"]:
        assert "wants credentials (401)" in result["error"]
    (said,) = report["notes"]
    assert "workers take credentials where they run" in said and name in said
    for log in machines.folder.glob("*/log"):
        text = log.read_text()
        assert not any(secret in text for secret in secrets)
    assert "tcp://" not in (machines.folder / "head/log").read_text()


def test_nobody_without_a_certificate_is_let_in(machines: Machines, head: Head) -> None:
    _, address = head
    other = Machines(machines.folder / "other", machines.host)
    done = other.scan(address, "app")
    assert done.returncode == 5 and "TLS certificate does not match" in done.stderr
    (other.shared / "dask/tls.yaml").unlink()
    done = other.scan(address, "app")
    assert done.returncode == 5 and "names none here" in done.stderr
    assert "Warning" not in done.stderr
