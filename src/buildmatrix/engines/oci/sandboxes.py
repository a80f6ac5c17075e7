"""Programs that run a command in a root file system, without a daemon.

Every sandbox has the same surroundings as in `engines.docker_containers`: a read-only root file
system, `/proc`, a small `/dev`, `/tmp` in memory, the image's environment and account. It has no
network and no capabilities, and cannot gain any.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import posixpath
import re
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from buildmatrix.base.child import bare_environment, bound, log_process, scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import Interrupted
from buildmatrix.engines.model import RunResult
from buildmatrix.engines.oci.confinement import (
    MISSING,
    PATIENCE,
    Confined,
    Sandbox,
    VisibleFiles,
    device_node,
    error_of,
)
from buildmatrix.engines.oci.unpacking import MOUNT_POINTS, Identity, add_mount_points
from buildmatrix.engines.process import plain, shorten

# Sandbox programs


class Bubblewrap(Sandbox):
    """`bwrap`, of Flatpak: a user namespace, for any user but root.

    Root would remain root outside of it, which is enough to write the machine's `/proc/sys`.
    """

    name = "bwrap"
    #: Its own process is the first one in the sandbox, and others can read its variables.
    needs_path = False

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
            # No options for groups: the account keeps its groups in a user namespace.
            line += ["--dev-bind", node, inside]
        line += ["--remount-ro", "/dev", "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108
        if confined.folder.startswith("/tmp/"):  # noqa: S108 - inside
            line += ["--dir", confined.folder]
        for name, value in confined.environment.items():
            line += ["--setenv", name, value]
        return [*line, "--chdir", confined.folder, "--", *confined.command]


class Runtime(Sandbox):
    """An OCI runtime: `crun` or `runc`, as root or rootless."""

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.name = Path(program).name
        self.has_owners = os.geteuid() == 0

    def line(self, confined: Confined, own: Path) -> list[str]:
        """See `Sandbox.line`."""
        if self.name == "runc":
            _check_groups(confined)
        (own / "config.json").write_text(json.dumps(self._configuration(confined)))
        return self._command(own, "run", "--bundle", os.fspath(own))

    def end(self, own: Path) -> None:
        """See `Sandbox.end`: its container outlives the runtime."""
        # A failure is ignored: there was nothing to clean up.
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self._command(own, "delete", "--force"),
                env=bare_environment(),
                check=False,
                capture_output=True,
                timeout=PATIENCE,
            )

    def _command(self, own: Path, *words: str) -> list[str]:
        # Without cgroups, which only root or a user of systemd could create.
        more = ["--cgroup-manager=disabled"] if self.name == "crun" else []
        identifier = "buildmatrix-" + hashlib.sha256(os.fsencode(own)).hexdigest()[:16]
        return [self._program, *more, "--root", os.fspath(own / "state"), *words, identifier]

    def _configuration(self, confined: Confined) -> dict[str, object]:
        account = confined.account
        mounts = [
            _mount("/proc", "proc", "nosuid,noexec,nodev"),
            _mount("/dev", "tmpfs", "nosuid,mode=755,size=65536k"),
            _mount("/dev/shm", "tmpfs", "nosuid,noexec,nodev,mode=1777", "shm"),  # noqa: S108
            _mount("/tmp", "tmpfs", "nosuid,nodev,mode=1777"),  # noqa: S108 - inside
        ]
        for inside, here in confined.folders.items():
            mounts.append(_mount(inside, "bind", "rbind,ro", os.fspath(here)))
        namespaces = ["pid", "network", "ipc", "uts", "mount"]
        linux: dict[str, object] = {
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"],
        }
        nodes = [device_node(inside, here) for inside, here in confined.nodes.items()]
        if nodes:
            numbers = [{key: node[key] for key in ("type", "major", "minor")} for node in nodes]
            allowed = [{"allow": True, "access": "rw", **number} for number in numbers]
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
        # crun(1): rootless, keep the user's groups, which may open the devices.
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
    """A changed root folder in namespaces of `unshare`, without additional programs.

    An ordinary user needs a user namespace, and a second one that maps the account to that user. If
    run by root, an account that is root could leave the folder, so such an image is refused.
    """

    name = "chroot"

    def __init__(self, program: str) -> None:
        super().__init__(program)
        self.has_owners = os.geteuid() == 0
        self.confines_root = not self.has_owners

    #: Runs in the new namespaces, and mounts what the root folder `$1` lacks; `$2` is where the
    #: command starts.
    _MOUNTS = """
set -eu
root=$1 folder=$2; shift 2
mount --make-rprivate /
mount --rbind "$root" "$root"
mount -o remount,ro,bind,nosuid "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/tmp"
case $folder in /tmp/*) mkdir -p "$root$folder";; esac
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
mount -o remount,ro,bind,nosuid "$root/dev"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    mount -o remount,ro,bind "$root$2"
    shift 2
done
shift
exec setpriv --no-new-privs -- "$@"
"""
    #: Changes the root folder and the account; the file `$1` says to which.
    #:
    #: `/` is the image's from `chroot` on. Python would import its own modules from there, and read
    #: the sources of a traceback: so all imports come before, and every error ends the process.
    _CHANGE = """
import errno, fcntl, json, os, signal, socket, struct, sys
with open(sys.argv[1], "rb") as file:
    is_root, root, folder, uid, gid, groups, command, environment = json.load(file)
command = [part.encode() for part in command]
environment = {name.encode(): value.encode() for name, value in environment.items()}
missing = (errno.ENOENT, errno.ENOTDIR)
with socket.socket() as plug:
    fcntl.ioctl(plug, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
if not is_root:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000):  # CLONE_NEWUSER
        sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
    for name, text in ("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{gid} 0 1"):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
try:
    os.chroot(root)
    os.chdir(folder)
    if is_root:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    else:
        for number in range(64):
            libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
    os.execve(command[0], command, environment)
except OSError as error:
    os.write(2, b"exec: %s: %s\\n" % (command[0], error.strerror.encode()))
    os._exit(127 if error.errno in missing else 126)
except BaseException:
    os._exit(126)
"""

    def line(self, confined: Confined, own: Path) -> list[str]:
        """See `Sandbox.line`."""
        account, root = confined.account, os.fspath(confined.root)
        change = own / "change.json"
        change.write_text(
            json.dumps(
                [
                    self.has_owners,
                    root,
                    confined.folder,
                    account.uid,
                    account.gid,
                    [*account.groups, *confined.devices.groups],
                    list(confined.command),
                    dict(confined.environment),
                ]
            )
        )
        shown = [part for inside, here in confined.folders.items() for part in (str(here), inside)]
        nodes = [part for inside, here in confined.nodes.items() for part in (here, inside)]
        users = [] if self.has_owners else ["--user", "--map-root-user"]
        return [
            self._program, *users, "--mount", "--pid", "--net", "--ipc", "--uts", "--fork",
            "--kill-child", "--", "/bin/sh", "-c", self._MOUNTS, "sh", root, confined.folder,
            *nodes, "--", *shown, "--",
            sys.executable, "-I", "-S", "-c", self._CHANGE, os.fspath(change),
        ]  # fmt: skip


def _check_groups(confined: Confined) -> None:
    """Raise `OSError` if the image's `/etc/group` would give the account other groups.

    runc 1.1 takes a number for the name of a group first. It reads that file, and `/etc/passwd`,
    for any account.
    """
    groups = [*confined.account.groups, *confined.devices.groups]
    with suppress(FileNotFoundError, NotADirectoryError):
        path = VisibleFiles(confined, has_owners=False).locate("/etc/group")
        names = "|".join(map(str, groups)).encode()
        if groups and re.search(rb"^\s*(%b)\s*:" % names, path.read_bytes(), re.MULTILINE):
            raise OSError(
                errno.EPERM, "a group of the image has a number as its name", "/etc/group"
            )


def _mount(inside: str, kind: str, options: str, source: str = "") -> dict[str, object]:
    """Describe a mount as in the OCI runtime specification (config.md)."""
    place = {"destination": inside, "type": kind, "source": source or kind}
    return {**place, "options": options.split(",")}


#: Memory limit per process in bytes, as cgroups may require root.
MEMORY = 8 << 30
#: Bytes of output to keep, from its end.
OUTPUT = 1 << 20
#: Seconds between checks for cancellation.
_INTERVAL = 0.1
#: Folders of sandbox programs that may be missing in a user's PATH.
_MORE_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"
#: Defaults of variables that the image does not set. The PATH is Docker's; without a HOME, runtimes
#: take one from the image's `/etc/passwd`.
_DEFAULTS = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - inside
}


def sandboxes() -> Iterator[Sandbox]:
    """Yield the installed sandboxes, best first."""
    kinds: list[tuple[str, Callable[[str], Sandbox]]]
    if os.geteuid() == 0:
        kinds = [("crun", Runtime), ("runc", Runtime), ("unshare", ChangedRoot)]
    else:
        # `bwrap` passes broken programs to the image's `/bin/sh`, so it comes second. Without root,
        # runc only runs account 0. Podman prefers crun as well.
        kinds = [("unshare", ChangedRoot), ("bwrap", Bubblewrap), ("crun", Runtime)]
    for program, kind in kinds:
        path = shutil.which(program, path=_search_path())
        if path is not None:
            yield kind(path)


def usable() -> tuple[Sandbox | None, str]:
    """Return the first working sandbox and its name, or None and the reason."""
    failures = []
    for sandbox in sandboxes():
        why = failure(sandbox)
        if why is None:
            return sandbox, sandbox.name
        failures.append(f"{sandbox.name} ({why})")
    if not failures:
        return None, "install bubblewrap or crun: either runs the commands of an image"
    remedy = "allow user namespaces, or install bubblewrap or crun"
    if os.geteuid() == 0:
        remedy = "allow root to mount, or install crun or runc"
    return None, f"nothing here can run a command of an image: {'; '.join(failures)}; {remedy}"


def failure(sandbox: Sandbox, patience: float = PATIENCE) -> str | None:
    """Return why a sandbox does not work on this machine; None if it does.

    Runs a program of this machine, with a timeout of `patience` seconds.
    """
    with scratch("sandbox") as folder:
        root, own = folder / "root", folder / "own"
        root.mkdir(0o755)
        own.mkdir()
        confined = of_this_machine(root, Identity(10001, 10001), ("/bin/true",))
        result = run(sandbox, confined, own, patience, lambda: False)
    if result.timed_out:
        return f"it did not start anything within {patience:g} s"
    lines = result.output.split("\n")
    return None if result.exit_code == 0 else shorten(next(filter(None, lines), "it failed"), 200)


def of_this_machine(root: Path, account: Identity, command: Sequence[str]) -> Confined:
    """Confine a program of this machine in the empty folder `root`, with its libraries."""
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
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Run a command and wait for it; `own` is an empty folder for the sandbox.

    Exit codes are those of a shell, in every sandbox: 127 if the command does not exist, 126 if it
    is not executable by the account. Raises `Interrupted` soon after `cancelled` returns True.
    """
    try:
        for inside, here in confined.nodes.items():
            device_node(inside, here)
        if sandbox.confines:
            confined = _prepare(confined, has_owners=sandbox.has_owners)
        command = sandbox.line(confined, own)
        log_end = log_process(command)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # The command gets no variable of this machine, and the sandbox none of the image.
            env={"LC_ALL": "C", **({"PATH": _search_path()} if sandbox.needs_path else {})},
            umask=0o022,
            start_new_session=True,
        )
    except OSError as error:
        code = 127 if error.errno in MISSING else 126
        return RunResult(code, f"{error.filename}: {error.strerror}", timed_out=False)
    assert process.stdout is not None
    deadline = clock() + timeout_s
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
                timed_out = clock() > deadline
        if not timed_out:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - clock()))
            timed_out = process.poll() is None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        log_end(process.wait())
        sandbox.end(own)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return RunResult(code, plain(tail.decode(errors="replace")), timed_out)


def _prepare(confined: Confined, *, has_owners: bool) -> Confined:
    """Resolve the command, and check the image's files that a sandbox uses before it runs.

    Sandboxes must not search for it: each resolves names differently, and `bwrap` passes files of
    an unknown format to the image's `/bin/sh`. Raises `OSError` if the command cannot be started.
    """
    folder = posixpath.normpath("/" + confined.folder.lstrip("/"))
    environment = {**_DEFAULTS, **confined.environment}
    texts = (folder, *confined.command, *environment, *environment.values())
    if any("\0" in text for text in texts):
        raise error_of(errno.EINVAL, "a NUL in the command or its environment")
    for name in MOUNT_POINTS:
        if not stat.S_ISDIR((confined.root / name).lstat().st_mode):
            raise error_of(errno.ENOTDIR, f"/{name}")
    confined = replace(confined, folder=folder, environment=environment)
    files = VisibleFiles(confined, has_owners=has_owners)
    files.make_folder(folder)
    program, *words = confined.command
    return replace(confined, command=(files.find_program(program), *words))


def _search_path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:{_MORE_PATHS}"
