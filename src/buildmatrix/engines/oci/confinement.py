"""Interface of sandboxes and of the commands that they run: visible files and devices."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.engines.model import NO_DEVICES, DeviceAccess
from buildmatrix.engines.oci.unpacking import MOUNT_POINTS, Identity

# Sandboxes


#: Timeout in seconds for the test of a sandbox.
PATIENCE = 20


class Confined(Struct, frozen=True):
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
    #: False if commands run as any program of this user does.
    confines = True
    #: True if it also confines an image that runs as root.
    confines_root = True
    #: True if it looks for other programs.
    needs_path = True

    def __init__(self, program: str) -> None:
        self._program = program

    @abstractmethod
    def line(self, confined: Confined, own: Path) -> list[str]:
        """Return the command line to run it; `own` is an empty folder for the sandbox."""

    def end(self, own: Path) -> None:  # noqa: B027 - most end with their line
        """End the remaining processes of a command whose sandbox was killed."""


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


# Files visible to a command, located on this machine by their paths inside


#: Errors of a command, or of a device, that does not exist.
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)
#: Maximum links in a path: path_resolution(7).
_MOST_LINKS = 40
#: Maximum nesting of script interpreters. Source: Linux, `exec_binprm` in `fs/exec.c`.
_MOST_SCRIPTS = 5


class VisibleFiles:
    """Files visible to a command, by their paths inside; links cannot escape."""

    def __init__(self, confined: Confined, *, has_owners: bool) -> None:
        self._confined = confined
        account = confined.account
        groups = (*account.groups, *confined.devices.groups)
        self._account = replace(account, groups=groups) if has_owners else None

    def find_program(self, name: str) -> str:
        """Return the path of a command, found in PATH unless it has a slash. Raises `OSError`."""
        folder = self._confined.folder
        if "/" in name:
            place = posixpath.join(folder, name)
            here = self._locate_program(place)
        else:
            failed = OSError(errno.ENOENT, "executable file not found in $PATH", name)
            for entry in self._confined.environment["PATH"].split(":") if name else ():
                place = posixpath.join(folder, entry, name)
                try:
                    here = self._locate_program(place)
                    break
                except OSError as error:
                    if error.errno not in MISSING:
                        failed = error
            else:
                raise failed
        self._check_format(here, place)
        return place

    def _locate_program(self, place: str) -> Path:
        here = self.locate(place)
        if not here.is_file() or not self._may_execute(here):
            raise error_of(errno.EACCES, place)
        return here

    def _check_format(self, here: Path, place: str) -> None:
        """Raise the error that starting a file gives. Source: execve(2)."""
        interpreter = place
        for _ in range(_MOST_SCRIPTS):
            try:
                with here.open("rb") as file:
                    start = file.read(256)
            except PermissionError:
                return  # A program may be executed and not read.
            if start.startswith(b"\x7fELF"):
                return
            words = start.partition(b"\n")[0][2:].split(maxsplit=1)
            if not start.startswith(b"#!") or not words:
                raise error_of(errno.ENOEXEC, interpreter)
            interpreter = posixpath.join(self._confined.folder, os.fsdecode(words[0]))
            try:
                here = self._locate_program(interpreter)
            except OSError as error:
                why = f"its interpreter {interpreter}: {error.strerror}"
                raise OSError(error.errno, why, place) from error
        raise error_of(errno.ELOOP, place)

    def make_folder(self, path: str) -> None:
        """Make a working folder that an image lacks, as Docker does. Raises `OSError`."""
        made = "/"
        if path.split("/")[1] in MOUNT_POINTS:
            return  # Made where a sandbox mounts something.
        for name in path.split("/"):
            parent, made = made, posixpath.join(made, name)
            try:
                here = self.locate(made)
            except PermissionError:
                return  # Some sandboxes enter it before they change the account.
            except FileNotFoundError:
                here = self.locate(parent) / name
                # Not below a folder of this machine, nor in place of a link that leads nowhere.
                if self._confined.root not in here.parents or here.is_symlink():
                    raise
                here.mkdir(0o755)
            if not here.is_dir():
                raise error_of(errno.ENOTDIR, path)

    def locate(self, path: str) -> Path:
        """Return where on this machine a path inside leads to. Raises `OSError`."""
        ahead = path.split("/")[::-1]
        at: list[str] = []
        links = 0
        here = self._confined.root
        while ahead:
            if not stat.S_ISDIR(here.lstat().st_mode):
                raise error_of(errno.ENOTDIR, path)
            if not self._may_execute(here):
                raise error_of(errno.EACCES, path)
            part = ahead.pop()
            if part == "..":
                del at[-1:]
            elif part not in ("", "."):
                at.append(part)
                try:
                    target = self._here(at).readlink()
                except FileNotFoundError as error:
                    raise error_of(errno.ENOENT, path) from error
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                else:
                    links += 1
                    if links > _MOST_LINKS:
                        raise error_of(errno.ELOOP, path)
                    del at[0 if target.is_absolute() else -1 :]
                    ahead += reversed(os.fspath(target).split("/"))
            here = self._here(at)
        return here

    def _here(self, at: Sequence[str]) -> Path:
        for length in range(len(at), 0, -1):
            shown = self._confined.folders.get("/" + "/".join(at[:length]))
            if shown is not None:
                return shown.joinpath(*at[length:])
        if at[1:] and at[0] in MOUNT_POINTS:
            raise error_of(errno.ENOENT, "/".join(at))  # Empty when a command starts.
        return self._confined.root.joinpath(*at)

    def _may_execute(self, here: Path) -> bool:
        """Return whether the account may execute a file, or enter a folder."""
        if self._account is None:
            return os.access(here, os.X_OK)
        status = here.stat()
        return bool(self._account.may(status.st_mode, status.st_uid, status.st_gid) & 1)


def error_of(number: int, path: str) -> OSError:
    """Return the error that a system call gives for a path."""
    return OSError(number, os.strerror(number), path)
