"""Where the stack keeps its files.

The cache survives between runs and machines; the run folder holds sockets, pids and
logs of one boot. The run folder lives under /run for root, because the path of a Unix
socket may hold 108 bytes at most, which a deep cache folder would exceed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .process import unmount


def _cache_root() -> Path:
    """The folder named by the environment, else the user's cache folder."""
    for variable in ("BUILDMATRIX_CACHE", "XDG_CACHE_HOME"):
        value = os.environ.get(variable)
        if value:
            return Path(value).expanduser().absolute()
    return Path.home() / ".cache"


@dataclass(frozen=True)
class Layout:
    """Every path the stack writes to."""

    cache: Path
    run: Path
    #: The cache whose programs an engine beside the stack's own uses; None for `cache`.
    programs: Path | None = None

    @classmethod
    def of_environment(cls) -> Layout:
        """The layout that the environment variables and the user imply."""
        cache = _cache_root() / "buildmatrix" / "stack"
        if os.geteuid() == 0:
            key = hashlib.sha256(os.fsencode(cache)).hexdigest()[:8]
            return cls(cache, Path("/run") / f"buildmatrix-{key}")
        return cls(cache, cache / "run")

    @property
    def prefix(self) -> Path:
        """Where Debian packages are unpacked."""
        return (self.programs or self.cache) / "prefix"

    @property
    def bin(self) -> Path:
        """The folder to put first on PATH: the stack's `docker`, nothing else."""
        return (self.programs or self.cache) / "bin"

    @property
    def docker_config(self) -> Path:
        """The client's configuration, which holds buildx as a plugin."""
        return (self.programs or self.cache) / "docker-config"

    @property
    def data_root(self) -> Path:
        """Images, containers and build cache of the engine."""
        return self.cache / "engine"

    @property
    def socket(self) -> Path:
        """The engine's socket."""
        return self.run / "docker.sock"

    @property
    def docker_host(self) -> str:
        """The engine's address as Docker clients spell it."""
        return f"unix://{self.socket}"

    @property
    def state(self) -> Path:
        """The record of the daemons that `up` started."""
        return self.run / "state.json"

    @property
    def lock(self) -> Path:
        """Held while `up` or `down` works."""
        return self.run / "lock"

    @property
    def drafts(self) -> Path:
        """Where things are made before they are moved into place."""
        return self.cache / "tmp"

    def log(self, name: str) -> Path:
        """The log file of one daemon or one step."""
        return self.run / "log" / f"{name}.log"

    def create(self) -> None:
        """Make the folders that everything else expects."""
        for folder in (self.cache, self.run, self.run / "log", self.drafts):
            folder.mkdir(parents=True, exist_ok=True)
        self.run.chmod(0o700)

    def clear_drafts(self) -> None:
        """Remove what an `up` that was cut short left half made; call it under the lock."""
        unmount([self.drafts.resolve()])
        shutil.rmtree(self.drafts, ignore_errors=True)
        self.drafts.mkdir()

    def docker_environment(self) -> dict[str, str]:
        """The environment in which `docker` means this stack's engine."""
        environment = dict(os.environ)
        environment.pop("DOCKER_CONTEXT", None)
        environment.pop("BUILDX_BUILDER", None)
        environment["DOCKER_HOST"] = self.docker_host
        environment["DOCKER_CONFIG"] = str(self.docker_config)
        environment["PATH"] = os.pathsep.join([str(self.bin), system_path()])
        return environment


def system_path() -> str:
    """PATH with the system administration folders, which a plain user's PATH may lack."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [folder for folder in ("/usr/sbin", "/sbin") if folder not in folders]
    return os.pathsep.join(folders)
