"""Programs that run a command in a root file system, without a daemon.

Every sandbox has the same surroundings as in `engines.docker.containers`: a read-only root file
system, `/proc`, a small `/dev`, `/tmp` in memory, the image's environment and account. It has no
network and no capabilities, and cannot gain any.
"""

from __future__ import annotations

import errno
import os
import posixpath
import selectors
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from buildmatrix.child import bound
from buildmatrix.engines.model import RunResult
from buildmatrix.engines.oci.confinement import PATIENCE, Confined, Sandbox, device_node
from buildmatrix.engines.oci.identity import Identity
from buildmatrix.engines.oci.sandboxes import Bubblewrap, ChangedRoot, Runtime
from buildmatrix.engines.oci.unpacking import MOUNT_POINTS, add_mount_points
from buildmatrix.engines.oci.visible_files import MISSING, VisibleFiles, error_of
from buildmatrix.engines.text import plain, shorten
from buildmatrix.errors import Interrupted
from buildmatrix.scratch import scratch

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
        path = _program(program)
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
        process = subprocess.Popen(
            sandbox.line(_prepare(confined, has_owners=sandbox.has_owners), own),
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
        process.wait()
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


def _program(name: str) -> str | None:
    return shutil.which(name, path=_search_path())
