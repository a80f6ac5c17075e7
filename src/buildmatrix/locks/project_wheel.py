"""Wheels of projects that are installed themselves, built by their own build backends.

Built on this machine, once for all targets. Both engines install them without a network, and the
lock does not change with the sources.
"""

from __future__ import annotations

import hashlib
import posixpath
import subprocess
from pathlib import Path

from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion

from buildmatrix.base import child
from buildmatrix.base.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.base.parsing import parse_wheel_name
from buildmatrix.base.scratch import scratch
from buildmatrix.base.text import printable
from buildmatrix.facts.files import keep_out_of_git, write_changed
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.model import Package, Wheel
from buildmatrix.locks.taken import own_projects
from buildmatrix.locks.uv import find_uv
from buildmatrix.matrix.model import PROJECT_WHEELS, Target

_SECONDS = 600.0
_MEMORY = 4 << 30
#: Time stamps of files in the wheel: equal sources give an equal wheel.
_EPOCH = "1704067200"
#: Lines of a failed build to show.
_LINES = 8


def project_packages(root: Path, target: Target) -> tuple[Package, ...]:
    """Return the built wheels as packages of a lock. Raises `BuildError` if there are none."""
    wheels = sorted((root / target.wheel_folder).glob("*.whl"))
    if not wheels:
        raise BuildError(f"{target.id}: {target.wheel_folder} has no wheel of {target.pyproject}")
    return tuple(_package(path, target) for path in wheels)


def _package(path: Path, target: Target) -> Package:
    try:
        name, version, _, _ = parse_wheel_name(path.name)
        data = path.read_bytes()
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise BuildError(f"{target.id}: {path.name} is not the name of a wheel") from error
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    digest = hashlib.sha256(data).hexdigest()
    wheel = Wheel(path.name, str(path.absolute()), digest, len(data))
    return Package(name, str(version), None, (wheel,), False, (target.pyproject or "",))


class ProjectWheels:
    """Builds wheels of the projects of a run, each once."""

    def __init__(self, root: Path, *, offline: bool) -> None:
        self._root, self._offline = root, offline
        #: Folder of a project → name and bytes of its wheel, or the reason why there is none.
        self._built: dict[str, tuple[str, bytes] | str] = {}

    def provide(self, target: Target) -> BuildmatrixError | None:
        """Put the wheels for `target` into its folder; return the error, if any."""
        try:
            wheels = dict(
                self._wheel(folder, target) for folder in own_projects(self._root, target)
            )
            folder = self._root / target.wheel_folder
            try:
                keep_out_of_git((self._root / PROJECT_WHEELS).parent)
                for other in folder.glob("*.whl"):
                    if other.name not in wheels:
                        other.unlink()
                for name, data in wheels.items():
                    write_changed(folder / name, data)
            except OSError as error:
                raise UndecidedError(f"{folder} cannot be written: {reason(error)}") from error
        except BuildmatrixError as error:
            return error
        return None

    def _wheel(self, folder: str, target: Target) -> tuple[str, bytes]:
        built = self._built.get(folder)
        if built is None:
            built = self._built[folder] = _build(
                self._root / folder, target.python, self._root, self._offline
            )
        if isinstance(built, str):
            label = posixpath.join(folder, "pyproject.toml")
            raise BuildError(f"{target.id}: {label}: {built}")
        return built


def _build(source: Path, python: str, root: Path, offline: bool) -> tuple[str, bytes] | str:
    """Build a project; return name and bytes of its wheel, or the reason of a failure."""
    uv = find_uv()
    with scratch("project") as made:
        arguments = ["build", "--wheel", f"--out-dir={made}"]
        arguments += ["--offline"] if offline else []
        interpreter = uv.interpreter(python, root)
        arguments += [f"--python={interpreter}"] if interpreter else []
        environment = {
            **child.user_environment(),
            "SOURCE_DATE_EPOCH": _EPOCH,
            "UV_PYTHON_DOWNLOADS": "never",
            "NO_COLOR": "1",
        }
        environment.pop("VIRTUAL_ENV", None)
        command = [str(uv.path), *arguments, str(source.absolute())]
        try:
            answer = child.run(command, source, environment, seconds=_SECONDS, memory=_MEMORY)
        except subprocess.TimeoutExpired:
            return f"its build did not end within {_SECONDS:.0f} s"
        wheels = sorted(made.glob("*.whl"))
        if answer.returncode != 0 or len(wheels) != 1:
            lines = [line for line in answer.stderr.splitlines() if line and line[:5] != "hint:"]
            text = "\n".join(map(printable, lines[-_LINES:])) or "it made no wheel"
            return f"the project cannot be built: {text}"
        if not wheels[0].name.endswith("-none-any.whl"):
            return (
                f"its wheel {wheels[0].name} is for this machine alone; build wheels for the "
                "images, put them on an index, and lock the project from there"
            )
        return wheels[0].name, wheels[0].read_bytes()
