"""Interface of sandboxes, and of the commands that they run."""

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

#: Timeout in seconds for the test of a sandbox.
PATIENCE = 20


@dataclass(frozen=True, slots=True)
class Confined:
    """A command and its surroundings."""

    root: Path
    account: Identity
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Its working folder.
    folder: str = "/"
    #: Folders of this machine to mount read-only: path inside → path here.
    folders: Mapping[str, Path] = field(default_factory=dict)
    #: Nodes of this machine that it may open, and the required groups.
    devices: DeviceAccess = NO_DEVICES
    #: Nodes of this machine with other names inside: path inside → path here.
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> Mapping[str, str]:
        """Return all nodes that it may open: path inside → path here."""
        return {**{node: node for node in self.devices.nodes}, **self.renamed}


class Sandbox(ABC):
    """A sandbox program."""

    #: Name of the program.
    name: str
    #: True if files keep their owners inside; otherwise all appear to belong to the account.
    has_owners = False
    #: True if it looks for other programs.
    needs_path = True

    def __init__(self, program: str) -> None:
        self._program = program

    @abstractmethod
    def line(self, confined: Confined, own: Path) -> list[str]:
        """Return the command line to run it; `own` is an empty folder for the sandbox."""

    def end(self, own: Path) -> None:  # noqa: B027 - most end with their line
        """End the remaining processes of a command whose sandbox was killed."""

    def refuses(self, account: Identity) -> str | None:  # noqa: ARG002 - for those that do
        """Return why it cannot confine an account; None if it can."""
        return None


def device_node(inside: str, here: str) -> dict[str, object]:
    """Describe a device as in the OCI runtime specification (config-linux.md)."""
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
