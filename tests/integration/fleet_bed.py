"""A small fleet in a real registry behind a proxy that can fail, and runs of `fleet scan` over it.

Used by `test_fleet_faults_real.py`, and by `bench/fleet_faults.py`, which does everything 20 times.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import dask
from bench.fleet_registry import Storage
from debian_registry import debian_registry
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from fault_proxy import FaultProxy
from fleet_cases import results_of

from buildmatrix.api.functions import fleet_scan
from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.commands.workspace import Workspace
from buildmatrix.fleet import context
from buildmatrix.fleet import run as fleet_run
from buildmatrix.fleet.cluster import _LOCAL
from buildmatrix.fleet.model import WaitingOptions
from buildmatrix.reports.fleet import FleetReport, FleetResult

SITE = "usr/lib/python3.11/site-packages"
IMAGES = 12
#: Registries are waited for as always, with shorter pauses.
WAITING = WaitingOptions(longest=40.0, longest_alone=20.0, first_pause=0.05, last_pause=0.5)
#: For a registry that does not come back.
IMPATIENT = replace(WAITING, longest=1.0, longest_alone=1.0)


def distribution(name: str, version: str, library: str, data: bytes) -> list[tuple[str, bytes]]:
    """An installed wheel with one library."""
    home = f"{SITE}/{name}-{version}.dist-info"
    record = f"{library},,\n{name}-{version}.dist-info/METADATA,,\n"
    return [
        (f"{home}/METADATA", f"Name: {name}\nVersion: {version}\n".encode()),
        (f"{home}/RECORD", record.encode()),
        (f"{SITE}/{library}", data),
    ]


@dataclass(frozen=True)
class Run:
    """How one run ended."""

    code: int
    report: FleetReport
    #: Of the file of lines, whole ones.
    lines: tuple[FleetResult, ...]
    #: What was said beside it.
    log: tuple[str, ...] = ()

    @property
    def undecided(self) -> dict[str, str]:
        """Title of an image → why it is not decided."""
        return {
            item.title: item.error or ""
            for item in self.report.results
            if item.state == "undecided"
        }


@dataclass
class Bed:
    """The registry with its fleet, and what runs over it; made by `bed`."""

    folder: Path
    storage: Storage
    proxy: FaultProxy
    #: What stands before an S3 server, once somebody has started one.
    s3: FaultProxy
    registry: Registry
    names: list[str]
    #: What speaks to the scheduler and the two workers that all runs share.
    client: Client
    #: What their processes find in their environment.
    environment: Mapping[str, str]
    #: What a run without any fault says.
    truth: FleetReport = field(default_factory=lambda: FleetReport(subject=""))

    def reference(self, name: str) -> str:
        """`HOST/NAME:TAG` of an image of the fleet."""
        return f"{self.proxy.host}/{name}"

    def on_workers(self, function: Callable[..., object], *arguments: object) -> None:
        """Have every worker call something."""
        self.client.run(function, *arguments)

    def kill_worker(self, number: int) -> bool:
        """SIGKILL for a worker process; whether there was one."""
        workers = [
            child
            for child in multiprocessing.active_children()
            if child.name.startswith("Dask Worker")
        ]
        if workers:
            workers[number % len(workers)].kill()
        return bool(workers)

    def run(
        self,
        store: str | Path,
        *,
        names: Sequence[str] | None = None,
        waiting: WaitingOptions = WAITING,
        keep: bool = False,
        scheduler: str = "",
        at: str = "",
        **options: object,
    ) -> Run:
        """`fleet scan`; without `keep` by machines that know nothing but what is in the store."""
        log: list[str] = []
        listed = self.folder / "images.txt"
        text = "\n".join(map(self.reference, names or self.names)) + "\n"
        # A run at the same time would read nothing of a file that is being written.
        if not listed.exists() or listed.read_text() != text:
            listed.write_text(text)
        lines = self.folder / f"lines{at}.jsonl"
        if not keep:
            self.on_workers(context.close)
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        with mock.patch.object(fleet_run, "WaitingOptions", lambda: waiting):
            try:
                result = fleet_scan(
                    f"file:{listed}",
                    backend="cpu",
                    store=str(store),
                    lines=lines,
                    fail_on="never",
                    scheduler=scheduler or self.client.scheduler.address,
                    workspace=Workspace(
                        specification=self.folder / "none.toml",
                        log=lambda _, text: log.append(text),
                    ),
                    **options,  # type: ignore[arg-type]
                )
            except BuildmatrixError as error:
                return Run(error.exit_code, FleetReport(subject=""), (), (error.message,))
        with lines.open("rb") as file:
            return Run(result.exit_code, result.document, results_of(file), tuple(log))


@dataclass
class Registry:
    """Debian's registry on a port of its own, which can be stopped and started."""

    program: Path
    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve, on the port of before."""
        started = debian_registry(self.program, self.folder, port=self.port)
        running = started.__enter__()
        self._ended, self.port, self.process = started, running.port, running.process

    def kill(self) -> None:
        """End it as a machine that loses its power."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self._ended.__exit__(None, None, None)
            self.process = None


def fill(storage: Storage, images: int = IMAGES, prefix: str = "fleet") -> list[str]:
    """Images that share layers, some with findings, a few under two tags; their names."""
    elf = Path("/bin/true").read_bytes()
    base = storage.layer(
        "base",
        [
            ("etc/os-release", b'ID=debian\nVERSION_ID="12"\n'),
            ("usr/lib/libbase.so", elf),
            ("srv/data", bytes(range(256))),
        ],
    )
    stacks = [
        storage.layer(name, parts)
        for name, parts in {
            "plain": distribution("markupsafe", "3.0.2", "markupsafe/_speedups.so", elf),
            "nccl": distribution(
                "nvidia_nccl_cu12", "2.27.3", "nvidia/nccl/lib/libnccl.so.2", elf + bytes(200_000)
            ),
            "rocm": distribution("jax_rocm7_pjrt", "0.7.1", "jax_plugins/xla_rocm7/x.so", elf),
            "empty": [("opt/nothing", b"")],
        }.items()
    ]
    names = []
    for number in range(images):
        top = storage.layer(
            f"app {number}",
            [(f"srv/app/main_{number}.py", f"VALUE = {number}\n".encode()), ("opt/x.so", elf)]
            if number % 3
            else [(f"srv/app/main_{number}.py", f"VALUE = {number}\n".encode())],
        )
        tags = ("v1", "latest") if number % 7 == 0 else ("v1",)
        for tag in tags:
            storage.image(
                f"{prefix}/app-{number:03}",
                tag,
                [base, stacks[number % len(stacks)], top],
                {"org.opencontainers.image.vendor": f"team-{number % 3}"},
                f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
            )
            names.append(f"{prefix}/app-{number:03}:{tag}")
    return names


def _environment(folder: Path, s3: FaultProxy) -> dict[str, str]:
    """Everything that processes would take from this machine, and a helper for credentials.

    The helpers say what stands in `secret.json` and `aws.json`.
    """
    helper = folder / "bin/docker-credential-faults"
    helper.parent.mkdir()
    helper.write_text(f"#!/bin/sh\nexec cat {folder}/secret.json\n")
    helper.chmod(0o755)
    (folder / "docker").mkdir()
    (folder / "docker/config.json").write_text('{"credsStore": "faults"}')
    (folder / "secret.json").write_text('{"Username": "", "Secret": ""}')
    (folder / "aws").write_text(f"[default]\ncredential_process = cat {folder}/aws.json\n")
    return {
        "BUILDMATRIX_CACHE": str(folder / "cache"),
        "DOCKER_CONFIG": str(folder / "docker"),
        "PATH": f"{helper.parent}:{os.environ['PATH']}",
        "AWS_CONFIG_FILE": str(folder / "aws"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3.origin,
    }


@contextmanager
def bed(folder: Path, program: Path, images: int = IMAGES) -> Iterator[Bed]:
    """The fleet, and what it says undisturbed."""
    storage = Storage(folder / "blobs")
    names = fill(storage, images)
    registry = Registry(program, folder)
    registry.start()
    with (
        FaultProxy(registry.port) as proxy,
        FaultProxy(0) as s3,
        ExitStack() as stack,
    ):
        environment = _environment(folder, s3)
        stack.enter_context(mock.patch.dict(os.environ, environment))
        settings = {
            **_LOCAL,
            # Workers are forked from one process that has imported everything.
            "distributed.worker.multiprocessing-method": "forkserver",
            "distributed.nanny.environ": environment,
        }
        stack.enter_context(dask.config.set(settings))
        get_mp_context().set_forkserver_preload(["fleet_warm"])
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address=None,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            held = Bed(folder, storage, proxy, s3, registry, names, client, environment)
            try:
                first = held.run(folder / "undisturbed")
                assert first.code == 0, first
                held.truth = first.report
                proxy.reset()
                yield held
            finally:
                registry.kill()
