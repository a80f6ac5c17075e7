"""Sandbox programs: Bubblewrap, an OCI runtime, and a changed root folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from buildmatrix.child import bare_environment
from buildmatrix.engines.oci.confinement import PATIENCE, Confined, Sandbox, device_node
from buildmatrix.engines.oci.identity import Identity
from buildmatrix.engines.oci.visible_files import VisibleFiles


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
        return [*self._own(own), "run", "--bundle", os.fspath(own), self._id(own)]

    def end(self, own: Path) -> None:
        """See `Sandbox.end`: its container outlives the runtime."""
        line = [*self._own(own), "delete", "--force", self._id(own)]
        _quietly(line)

    def _own(self, own: Path) -> list[str]:
        # Without cgroups, which only root or a user of systemd could create.
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
        nodes = [device_node(inside, here) for inside, here in confined.nodes.items()]
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

    def refuses(self, account: Identity) -> str | None:
        """See `Sandbox.refuses`."""
        if self.has_owners and account.uid == 0:
            return "an image that runs as root is not confined by it"
        return None


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


def _number(node: Mapping[str, object]) -> dict[str, object]:
    return {key: node[key] for key in ("type", "major", "minor")}


def _quietly(line: Sequence[str]) -> None:
    """Run a cleanup command, and ignore its failure: there was nothing to clean up."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            line, env=bare_environment(), check=False, capture_output=True, timeout=PATIENCE
        )
