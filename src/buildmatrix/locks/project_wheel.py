"""The wheel of a project that is installed itself, made by its own build backend.

It is made on this machine, once for all targets, and lies in a folder of its own. Both engines
install it without a network, and the lock does not change with the sources.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion

from buildmatrix import child
from buildmatrix.errors import BuildError, BuildmatrixError, UndecidedError
from buildmatrix.files import keep_out_of_git, write_changed
from buildmatrix.locks.model import Package, Wheel
from buildmatrix.locks.uv import find_uv
from buildmatrix.parsing import parse_wheel_name
from buildmatrix.scratch import scratch
from buildmatrix.spec.model import PROJECT_WHEELS, Target
from buildmatrix.text import printable
from buildmatrix.trees.base import reason

_SECONDS = 600.0
_MEMORY = 4 << 30
#: Time stamps of files in the wheel: the same sources make the same wheel.
_EPOCH = "1704067200"
#: Lines of a failed build that are shown.
_LINES = 8


def project_package(root: Path, target: Target) -> Package:
    """The wheel that was built, as a package of a lock. Raises `BuildError` where there is none."""
    folder = root / target.wheel_folder
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(f"{target.id}: {target.wheel_folder} holds no wheel of {target.pyproject}")
    path = wheels[0]
    try:
        name, version, _, _ = parse_wheel_name(path.name)
        data = path.read_bytes()
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise BuildError(f"{target.id}: {path.name} is not a name of a wheel") from error
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    digest = hashlib.sha256(data).hexdigest()
    wheel = Wheel(path.name, str(path.absolute()), digest, len(data))
    return Package(name, str(version), None, (wheel,), False, (target.pyproject or "",))


def build_wheel(root: Path, target: Target, *, offline: bool) -> BuildmatrixError | None:
    """Build the project of `target` into its folder; why that failed, if it did."""
    try:
        _build(root, target, offline)
    except BuildmatrixError as error:
        return error
    return None


def _build(root: Path, target: Target, offline: bool) -> None:
    uv, label = find_uv(), target.pyproject or ""
    source = (root / label).parent
    with scratch("project") as made:
        arguments = ["build", "--wheel", f"--out-dir={made}"]
        arguments += ["--offline"] if offline else []
        python = uv.interpreter(target.python, root)
        arguments += [f"--python={python}"] if python else []
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
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"{target.id}: {label}: its build took {_SECONDS:.0f} s") from error
        wheels = sorted(made.glob("*.whl"))
        if answer.returncode != 0 or len(wheels) != 1:
            lines = [line for line in answer.stderr.splitlines() if line and line[:5] != "hint:"]
            text = "\n".join(map(printable, lines[-_LINES:])) or "it made no wheel"
            raise BuildError(f"{target.id}: {label}: the project cannot be built: {text}")
        if not wheels[0].name.endswith("-none-any.whl"):
            raise BuildError(
                f"{target.id}: {label}: its wheel {wheels[0].name} is for this machine alone; "
                "build wheels for the images, put them on an index, and lock the project from there"
            )
        folder = root / target.wheel_folder
        try:
            keep_out_of_git((root / PROJECT_WHEELS).parent)
            for other in folder.glob("*.whl"):
                if other.name != wheels[0].name:
                    other.unlink()
            write_changed(folder / wheels[0].name, wheels[0].read_bytes())
        except OSError as error:
            raise UndecidedError(f"{folder} cannot be written: {reason(error)}") from error
