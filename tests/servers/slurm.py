"""SLURM on this machine, as anybody's: munged, slurmctld and slurmd with folders of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: https://slurm.schedmd.com/slurm.conf.html; the node has more cores than the machine may have.
_SETTINGS = """
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 CoresPerSocket=8 RealMemory=16384
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_START_SECONDS = 300


@contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Its configuration, for `SLURM_CONF`; all of it is ended with the `with` statement."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    settings = folder / "slurm.conf"
    settings.write_text(
        _SETTINGS.format(
            host=socket.gethostname(),
            user=Path("/proc/self").owner(),
            folder=folder,
            controller=_free_port(),
            node=_free_port(),
        )
    )
    # What it does without a word on the command line it does in the folders of the system.
    files = {"socket": "munge", "key-file": "key", "pid-file": "munge.pid", "seed-file": "seed"}
    munge = [f"--{option}={folder / name}" for option, name in files.items()]
    with ExitStack() as stack:
        for command in (
            # Others may not enter the folder of its socket, and nobody else has to.
            ["munged", "--foreground", "--force", f"--log-file={folder}/munge.log", *munge],
            ["slurmctld", "-D", "-f", str(settings)],
            ["slurmd", "-D", "-f", str(settings)],
        ):
            stack.enter_context(_running(command, folder / f"{command[0]}.log"))
            if command[0] == "munged":
                _wait((folder / "munge").exists, folder)
        _wait(
            lambda: _says("sinfo", "--noheader", "--format=%T", settings=settings) == "idle", folder
        )
        yield settings


def jobs(settings: Path) -> str:
    """Numbers of the jobs that wait or run."""
    return _says("squeue", "--noheader", "--format=%A", settings=settings)


def _says(*command: str, settings: Path) -> str:
    environment = {**os.environ, "SLURM_CONF": str(settings)}
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(300)


def _wait(until: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not until():
        if time.monotonic() > end:
            logs = "\n".join(log.read_text(errors="replace") for log in folder.glob("*.log"))
            raise RuntimeError(f"SLURM does not start:\n{logs}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
