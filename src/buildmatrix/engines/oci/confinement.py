"""What is confined, and what every program that confines can do."""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from buildmatrix.engines.model import NO_DEVICES, DeviceAccess
from buildmatrix.engines.oci.identity import Identity

#: Seconds for a sandbox to show that it works.
PATIENCE = 20


@dataclass(frozen=True, slots=True)
class Confined:
    """A command, and what it runs in."""

    root: Path
    account: Identity
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Where it starts.
    folder: str = "/"
    #: Folders of this machine that are shown, read-only: path inside → path here.
    folders: Mapping[str, Path] = field(default_factory=dict)
    #: Nodes of this machine that it may open, and the groups that it is in for them.
    devices: DeviceAccess = NO_DEVICES
    #: Nodes of this machine that have other names inside: path inside → path here.
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> Mapping[str, str]:
        """All nodes that it may open: path inside → path here."""
        return {**{node: node for node in self.devices.nodes}, **self.renamed}


class Sandbox(ABC):
    """One program that confines."""

    #: The program.
    name: str
    #: Whether files have their owners in it, or all seem to be the account's.
    has_owners = False
    #: Whether it looks for other programs.
    needs_path = True

    def __init__(self, program: str) -> None:
        self._program = program

    @abstractmethod
    def line(self, confined: Confined, own: Path) -> list[str]:
        """The command line that runs it; `own` is an empty folder for what it needs."""

    def end(self, own: Path) -> None:  # noqa: B027 - most end with their line
        """End what is left of a command whose line was killed."""

    def refuses(self, account: Identity) -> str | None:  # noqa: ARG002 - for those that do
        """Why it does not confine such an account; None where it does."""
        return None


def device_node(inside: str, here: str) -> dict[str, object]:
    """A device of this machine, as the OCI runtime specification describes it (config-linux.md)."""
    status = Path(here).stat()
    if not stat.S_ISCHR(status.st_mode):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), here)
    return {
        "path": inside,
        "type": "c",
        "major": os.major(status.st_rdev),
        "minor": os.minor(status.st_rdev),
        "fileMode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }
