"""A Python environment of this machine as the subject of a preflight, for nodes without images.

A batch system's node, bare metal and a pod often have no engine. Commands see this machine's files
and devices, in the first sandbox that starts the environment's Python. Without one, they run
directly, which reports say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from buildmatrix.base.child import scratch
from buildmatrix.base.errors import UsageError
from buildmatrix.engines.model import (
    NO_DEVICES,
    DeviceAccess,
    Facilities,
    ImageFacts,
    Run,
    RunResult,
)
from buildmatrix.engines.oci import sandboxes
from buildmatrix.engines.oci.confinement import PATIENCE, Confined, Sandbox
from buildmatrix.engines.oci.unpacking import Identity, add_mount_points
from buildmatrix.engines.process import shorten
from buildmatrix.matrix.model import Spec, bare_spec
from buildmatrix.preflight.subject import Subject, make_bare_target

#: Prefixes of a name.
PREFIXES = ("env", "dir")
#: Folders that a sandbox has itself, or that hold sockets of this machine's services.
_OWN_FOLDERS = frozenset({"dev", "proc", "run", "tmp"})
#: Variables of this machine by which jobs find libraries and the devices they were given.
_VARIABLES = re.compile(r"LD_LIBRARY_PATH|\w+_VISIBLE_DEVICES|\w+_DEVICE_ORDINAL")


class Direct(Sandbox):
    """No sandbox: the network, and all that this user may read and write."""

    name = "none"
    confines = False

    def line(self, confined: Confined, own: Path) -> list[str]:
        """See `Sandbox.line`. Python would import modules of the working folder."""
        variables = {**confined.environment, "HOME": own, "TMPDIR": own}
        words = [f"{name}={value}" for name, value in variables.items()]
        start = 'cd "$0" && exec env -i "$@"'
        return [self._program, "-c", start, os.fspath(own), *words, *confined.command]


class PythonEnvironment:
    """Runs commands in a Python environment; see `engines.model.Runner`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def sandbox(self) -> tuple[Sandbox, str]:
        """The first sandbox that starts the environment's Python; and why none does."""
        failures = []
        for sandbox in sandboxes.sandboxes():
            if os.geteuid() == 0 and not sandbox.confines_root:
                failures.append(f"{sandbox.name} does not confine root")
                continue
            line = self._ask_for_prefix(sandbox)
            # Another Python in PATH may answer.
            if os.path.realpath(line) == os.path.realpath(self._folder):
                return sandbox, ""
            failures.append(f"{sandbox.name}: {shorten(line, 200)}")
        return Direct("/bin/sh"), "; ".join(failures) or "no program for it is installed"

    def _ask_for_prefix(self, sandbox: Sandbox) -> str:
        """Return what `python` prints as its prefix, or its first line of errors."""
        line = ("python", "-I", "-c", "import sys; print(sys.prefix)")
        result = self._run(sandbox, NO_DEVICES, line, PATIENCE)
        said = next(filter(None, result.output.splitlines()), "it does not start Python")
        return said if result.exit_code == 0 else f"error: {said}"

    def cannot_run(self, reference: str) -> None:
        """See `Runner.cannot_run`."""

    def facilities(self) -> Facilities:
        """See `Runner.facilities`."""
        return Facilities(folder=self._folder, has_host_files=True)

    @contextmanager
    def runner(self, reference: str, devices: DeviceAccess = NO_DEVICES) -> Iterator[Run]:  # noqa: ARG002
        """See `Runner.runner`."""
        sandbox, _ = self.sandbox
        yield lambda command, timeout_s: self._run(sandbox, devices, command, timeout_s)

    def _run(
        self, sandbox: Sandbox, devices: DeviceAccess, command: Sequence[str], timeout_s: float
    ) -> RunResult:
        with scratch("environment") as folder:
            root, own = folder / "root", folder / "own"
            root.mkdir(0o755)
            own.mkdir()
            confined = Confined(
                root,
                Identity(os.geteuid(), os.getegid(), tuple(os.getgroups())),
                command,
                self._variables(),
                folders=_show_files(root) if sandbox.confines else {},
                devices=devices,
            )
            return sandboxes.run(sandbox, confined, own, timeout_s, lambda: False)

    def _variables(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}
        path = f"{self._folder / 'bin'}:{os.environ.get('PATH', os.defpath)}"
        return {**given, "PATH": path, "VIRTUAL_ENV": os.fspath(self._folder), "HOME": "/tmp"}  # noqa: S108


def _show_files(root: Path) -> dict[str, Path]:
    """Make the folders of this machine mount points in `root`; return those that are mounted."""
    folders = {}
    for path in Path("/").iterdir():
        if path.is_symlink():
            (root / path.name).symlink_to(path.readlink())
        elif path.is_dir() and path.name not in _OWN_FOLDERS:
            (root / path.name).mkdir()
            folders[str(path)] = path
    add_mount_points(root)
    return folders


def find_environment(name: str, folder: Path, backend: str | None, spec: Spec | None) -> Subject:
    """Return the environment in a folder, for a backend.

    Raises `UsageError` if the backend is missing, or the folder has no Python.
    """
    python = folder / "bin/python"
    if not python.is_file() or not os.access(python, os.X_OK):
        raise UsageError(f"{name} is no Python environment: {python} cannot be run")
    if backend is None:
        raise UsageError(f"{name} does not say which backend it is for; give --backend")
    target = make_bare_target(name, backend, "any", spec)
    environment = PythonEnvironment(folder.absolute())
    sandbox, why = environment.sandbox
    return Subject(
        target,
        spec or bare_spec(target),
        environment,
        name,
        ImageFacts("", {}, {}, 0, ""),
        sandbox=sandbox.name,
        without_sandbox=why,
    )
