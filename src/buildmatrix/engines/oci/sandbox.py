"""Programs that run a command in a root file system, without a daemon.

Every sandbox gives a command what `engines.docker.containers` gives it: a root file system that
cannot be written, `/proc`, a small `/dev`, `/tmp` in memory, the image's environment and account,
and nothing else; no network, no capability, no way to gain one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from buildmatrix.child import bound
from buildmatrix.engines.model import NO_DEVICES, DeviceAccess, RunResult
from buildmatrix.engines.oci.identity import Identity
from buildmatrix.engines.oci.unpacking import add_mount_points
from buildmatrix.engines.text import plain, shorten
from buildmatrix.errors import Interrupted
from buildmatrix.scratch import scratch

#: Bytes of memory of each process of a command: nobody without root has cgroups for sure.
MEMORY = 8 << 30
#: Bytes of output that are kept, the last ones.
OUTPUT = 1 << 20
#: Seconds between two looks whether somebody cancelled.
_INTERVAL = 0.1
#: Seconds for a sandbox to show that it works.
_PATIENCE = 20
#: Where the programs of a sandbox may lie that a user's PATH leaves out.
_MORE_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"


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


class Bubblewrap(Sandbox):
    """`bwrap`, of Flatpak: a user namespace, for anybody but root.

    Root would still be root outside of it: `/proc/sys` of the machine asks for no more than that.
    """

    name = "bwrap"

    def line(self, confined: Confined, own: Path) -> list[str]:  # noqa: ARG002
        """See `Sandbox.line`."""
        account = confined.account
        line = [
            self._program, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session",
            "--uid", str(account.uid), "--gid", str(account.gid), "--cap-drop", "ALL",
            "--clearenv", "--ro-bind", os.fspath(confined.root), "/",
        ]  # fmt: skip
        for inside, here in confined.folders.items():
            line += ["--ro-bind", os.fspath(here), inside]
        line += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777"]
        line += ["--tmpfs", "/dev/shm"]  # noqa: S108
        for inside, node in confined.nodes.items():
            # Groups need no words: a user namespace leaves the account those that it has.
            line += ["--dev-bind", node, inside]
        line += ["--remount-ro", "/dev", "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108
        for name, value in confined.environment.items():
            line += ["--setenv", name, value]
        return [*line, "--chdir", confined.folder, "--", *confined.command]


class Runtime(Sandbox):
    """A runtime of the OCI runtime specification: `crun` or `runc`, as root or rootless."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.name = Path(program).name
        self.has_owners = os.geteuid() == 0

    def line(self, confined: Confined, own: Path) -> list[str]:
        """See `Sandbox.line`."""
        (own / "config.json").write_text(json.dumps(self._configuration(confined)))
        return [*self._own(own), "run", "--bundle", os.fspath(own), self._id(own)]

    def end(self, own: Path) -> None:
        """See `Sandbox.end`: its container outlives the runtime."""
        line = [*self._own(own), "delete", "--force", self._id(own)]
        _quietly(line)

    def _own(self, own: Path) -> list[str]:
        # Without cgroups: nobody but root, or a user of systemd, could make one.
        more = ["--cgroup-manager=disabled"] if self.name == "crun" else []
        return [self._program, *more, "--root", os.fspath(own / "state")]

    def _id(self, own: Path) -> str:
        return "buildmatrix-" + hashlib.sha256(os.fsencode(own)).hexdigest()[:16]

    def _configuration(self, confined: Confined) -> dict[str, object]:
        account = confined.account
        private = ["nosuid", "noexec", "nodev"]
        mounts: list[dict[str, object]] = [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": private},
            {
                "destination": "/dev",
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "mode=755", "size=65536k"],
            },
            {
                "destination": "/dev/shm",  # noqa: S108 - inside
                "type": "tmpfs",
                "source": "shm",
                "options": [*private, "mode=1777"],
            },
            {
                "destination": "/tmp",  # noqa: S108 - inside
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=1777"],
            },
        ]
        for inside, here in confined.folders.items():
            place = {"destination": inside, "type": "bind", "source": os.fspath(here)}
            mounts.append({**place, "options": ["rbind", "ro"]})
        namespaces = ["pid", "network", "ipc", "uts", "mount"]
        linux: dict[str, object] = {
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"],
        }
        nodes = [_node(inside, here) for inside, here in confined.nodes.items()]
        if nodes:
            allowed = [{"allow": True, "access": "rw", **_number(node)} for node in nodes]
            linux |= {"devices": nodes, "resources": {"devices": allowed}}
        groups = [*account.groups, *confined.devices.groups]
        if not self.has_owners:
            namespaces.append("user")
            groups = []  # A user may map no group but its own.
            linux["uidMappings"] = [{"containerID": account.uid, "hostID": os.geteuid(), "size": 1}]
            linux["gidMappings"] = [{"containerID": account.gid, "hostID": os.getegid(), "size": 1}]
        linux["namespaces"] = [{"type": name} for name in namespaces]
        user: dict[str, object] = {"uid": account.uid, "gid": account.gid}
        if groups:
            user["additionalGids"] = groups
        # crun(1): rootless, the groups of the user who may open the devices.
        keep = {"run.oci.keep_original_groups": "1"} if nodes and not self.has_owners else {}
        return {
            "annotations": keep,
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": user,
                "args": list(confined.command),
                "env": [f"{name}={value}" for name, value in confined.environment.items()],
                "cwd": confined.folder,
                "capabilities": {},
                "noNewPrivileges": True,
            },
            "root": {"path": os.fspath(confined.root), "readonly": True},
            "hostname": "buildmatrix",
            "mounts": mounts,
            "linux": linux,
        }


class ChangedRoot(Sandbox):
    """A changed root folder in namespaces that `unshare` makes: for root, with nothing installed.

    An account that is root itself could leave it, so that is not run.
    """

    name = "chroot"
    has_owners = True

    #: Runs in the new namespaces, and mounts what the root folder `$1` lacks.
    _MOUNTS = """
set -eu
root=$1; shift
mount --make-rprivate /
mount --rbind "$root" "$root"
mount -o remount,ro,bind,nosuid "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/dev"
for name in null zero full random urandom; do
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
while [ "$1" != -- ]; do
    mkdir -p "$root${2%/*}"
    : >"$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
mount -o remount,ro,nosuid "$root/dev"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    mount -o remount,ro,bind "$root$2"
    shift 2
done
shift
exec setpriv --no-new-privs -- "$@"
"""
    #: Changes the root folder and the account. What is imported is imported before.
    _CHANGE = """
import fcntl, json, os, socket, struct, sys
root, folder, uid, gid, groups, command, environment = json.loads(sys.argv[1])
with socket.socket() as plug:
    fcntl.ioctl(plug, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
os.chroot(root)
os.chdir(folder)
os.setgroups(groups)
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
try:
    os.execvpe(command[0], command, environment)
except OSError as error:
    sys.exit(f"{command[0]}: {error.strerror}")
"""

    def line(self, confined: Confined, own: Path) -> list[str]:  # noqa: ARG002
        """See `Sandbox.line`."""
        account, root = confined.account, os.fspath(confined.root)
        change = json.dumps(
            [
                root,
                confined.folder,
                account.uid,
                account.gid,
                [*account.groups, *confined.devices.groups],
                list(confined.command),
                dict(confined.environment),
            ]
        )
        shown = [part for inside, here in confined.folders.items() for part in (str(here), inside)]
        nodes = [part for inside, here in confined.nodes.items() for part in (here, inside)]
        return [
            self._program, "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child",
            "--", "/bin/sh", "-c", self._MOUNTS, "sh", root, *nodes, "--",
            *shown, "--",
            sys.executable, "-I", "-S", "-c", self._CHANGE, change,
        ]  # fmt: skip

    def refuses(self, account: Identity) -> str | None:
        """See `Sandbox.refuses`."""
        return "an image that runs as root is not confined by it" if account.uid == 0 else None


def _node(inside: str, here: str) -> dict[str, object]:
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


def _number(node: Mapping[str, object]) -> dict[str, object]:
    return {key: node[key] for key in ("type", "major", "minor")}


def sandboxes() -> Iterator[Sandbox]:
    """Those whose programs are installed, the best first."""
    kinds: list[tuple[str, Callable[[str], Sandbox]]]
    if os.geteuid() == 0:
        kinds = [("crun", Runtime), ("runc", Runtime), ("unshare", ChangedRoot)]
    else:
        # Without root, runc runs no account but number 0. Podman runs all by crun, as we do.
        kinds = [("bwrap", Bubblewrap), ("crun", Runtime)]
    for program, kind in kinds:
        path = _program(program)
        if path is not None:
            yield kind(path)


def usable() -> tuple[Sandbox | None, str]:
    """The first sandbox that runs something here, and its name; else why there is none."""
    failures = []
    for sandbox in sandboxes():
        why = failure(sandbox)
        if why is None:
            return sandbox, sandbox.name
        failures.append(f"{sandbox.name} ({why})")
    if failures:
        return None, f"nothing here can run a command of an image: {'; '.join(failures)}"
    return None, "install bubblewrap or crun: either runs the commands of an image"


def failure(sandbox: Sandbox) -> str | None:
    """Why a sandbox does not work on this machine; None where it does.

    It runs a program of this machine, with the folders that the program needs.
    """
    with scratch("sandbox") as folder:
        root, own = folder / "root", folder / "own"
        root.mkdir(0o755)
        own.mkdir()
        confined = of_this_machine(root, Identity(10001, 10001), ("/bin/true",))
        result = run(sandbox, confined, own, _PATIENCE, lambda: False)
    if result.timed_out:
        return f"it did not start anything within {_PATIENCE} s"
    lines = result.output.split("\n")
    return None if result.exit_code == 0 else shorten(next(filter(None, lines), "it failed"), 200)


def of_this_machine(root: Path, account: Identity, command: Sequence[str]) -> Confined:
    """A program of this machine, in the empty folder `root`, with the folders that it needs."""
    folders = {}
    for path in map(Path, ("/usr", "/bin", "/lib", "/lib64")):
        if path.is_symlink():
            (root / path.name).symlink_to(path.readlink())
        elif path.is_dir():
            (root / path.name).mkdir()
            folders[str(path)] = path
    add_mount_points(root)
    return Confined(root, account, command, folders=folders)


def run(
    sandbox: Sandbox,
    confined: Confined,
    own: Path,
    timeout_s: float,
    cancelled: Callable[[], bool],
) -> RunResult:
    """Run a command to its end; `own` is an empty folder for what the sandbox needs.

    Raises `Interrupted` soon after `cancelled` says so.
    """
    try:
        for inside, here in confined.nodes.items():
            _node(inside, here)
        line = sandbox.line(confined, own)
    except OSError as error:
        # As Docker says it: nothing was started.
        return RunResult(127, f"{error.filename}: {error.strerror}", timed_out=False)
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    tail, timed_out = b"", False
    try:
        bound(process.pid, memory=MEMORY)
        with process.stdout as output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not timed_out:
                if cancelled():
                    raise Interrupted("interrupted while a smoke command ran")
                if selector.select(_INTERVAL):
                    chunk = os.read(output.fileno(), OUTPUT)
                    if not chunk:
                        break
                    tail = (tail + chunk)[-OUTPUT:]
                timed_out = time.monotonic() > deadline
        if not timed_out:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            timed_out = process.poll() is None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        sandbox.end(own)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return RunResult(code, plain(tail.decode(errors="replace")), timed_out)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_MORE_PATHS}")


def _quietly(line: Sequence[str]) -> None:
    """Clean up; what cannot be cleaned up was not there."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(line, check=False, capture_output=True, timeout=_PATIENCE)
