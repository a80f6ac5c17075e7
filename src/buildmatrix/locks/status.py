"""State of locks: fit to their inputs, unused locks, and changes by a new lock.

Built on this machine, once for all targets. Both engines install them without a network, and the
lock does not change with the sources.
"""

from __future__ import annotations

import hashlib
import posixpath
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion

from buildmatrix.base import child
from buildmatrix.base.child import scratch
from buildmatrix.base.errors import BuildError, BuildmatrixError, SpecError, UndecidedError
from buildmatrix.base.parsing import parse_wheel_name
from buildmatrix.base.text import printable
from buildmatrix.facts.files import begins_with, keep_out_of_git, write_changed
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.locks.pylock import difference, input_values, read_lock, read_lock_and_record
from buildmatrix.locks.taken import COMMANDS, own_projects, trouble_with
from buildmatrix.locks.target_requirements import read_target_requirements
from buildmatrix.locks.uv import find_uv
from buildmatrix.matrix.document import toml_string
from buildmatrix.matrix.model import LOCK_HEADER, PROJECT_WHEELS, Spec, Target

# Changes


#: Name → version.
Versions = Mapping[str, str]


def versions_of(lock: Lock) -> Versions:
    """Return the versions in a lock."""
    return {package.name: package.version for package in (*lock.packages, *lock.conda)}


def versions_in(path: Path) -> Versions | None:
    """Return the versions in the lock at `path`; None if it is missing or unreadable."""
    try:
        return versions_of(read_lock(path))
    except SpecError:
        return None


def changes(
    before: Mapping[str, Versions | None], after: Mapping[str, Versions]
) -> tuple[str, ...]:
    """Return one line per change, with its targets unless it is for all that were locked.

    `before` and `after` are by target. A target without an old lock has no changes.
    """
    locked_before = {id: now for id, now in after.items() if before.get(id) is not None}
    ids_of: dict[tuple[str, str], list[str]] = {}
    for id, now in locked_before.items():
        was = before[id] or {}
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                ids_of.setdefault((name, _describe_change(name, was, now)), []).append(id)
    return tuple(
        f"  {words}" + (f"  ({', '.join(ids)})" if len(ids) < len(locked_before) else "")
        for (_, words), ids in sorted(ids_of.items())
    )


def _describe_change(name: str, was: Versions, now: Versions) -> str:
    if name not in was:
        return f"{name} {now[name]} is new".replace("  ", " ")
    if name not in now:
        return f"{name} {was[name]} is gone".replace("  ", " ")
    return f"{name} {was[name] or 'without version'} -> {now[name] or 'without version'}"


# State


def staleness(spec: Spec, target: Target) -> str | None:
    """Return why the lock of `target` does not fit its inputs, or None; see `current`."""
    if target.committed_lock:
        return trouble_with(spec.root, target)
    present = current(spec, target)
    return present if isinstance(present, str) else None


def current(spec: Spec, target: Target) -> Lock | str:
    """Return the resolved lock of `target`, or why it does not fit its inputs.

    Compares recorded inputs with present ones: needs no network. Raises `SpecError` for a
    requirement file that cannot be read; a lock that cannot be read is a reason, no error.
    """
    path = spec.root / target.lock
    if not path.exists():
        return f"there is no {target.lock} yet"
    requirements = read_target_requirements(spec.root, target)
    try:
        lock, record = read_lock_and_record(path)
    except SpecError as error:
        return str(error.problems[0].message)
    if not record.inputs:
        return f"{target.lock} does not record its inputs"
    now = input_values(spec.root, target, requirements)
    return difference(record.inputs, now) or lock


def unused_locks(root: Path, targets: Sequence[Target]) -> tuple[str, ...]:
    """Return one sentence per lock of the project that the resolved `targets` do not use."""
    unused: dict[str, str] = {}
    for target in targets:
        for name in COMMANDS:
            label = posixpath.join(posixpath.dirname(target.pyproject or ""), name)
            if (root / label).is_file():
                unused[label] = " in place of `requirements`" if target.requirements else ""
    return tuple(
        f"{label} is unused: versions are resolved anew; to install its versions, "
        f"write `lock = {toml_string(label)}`{instead}"
        for label, instead in sorted(unused.items())
    )


def leftovers(spec: Spec) -> tuple[str, ...]:
    """Return one sentence per lock that `buildmatrix lock` wrote and that no target uses.

    Only the folders of present locks are searched. They may also have locks of another
    specification: so nothing is removed.
    """
    locks = {target.lock for target in spec.targets}
    written = {
        f"{folder}/{path.name}".removeprefix("./")
        for folder in {lock.rpartition("/")[0] or "." for lock in locks}
        for path in (spec.root / folder).glob("*.toml")
        if _is_our_own(path)
    }
    return tuple(
        f"{name} belongs to no target of {spec.path.name}; delete it unless another "
        "specification uses it"
        for name in sorted(written - locks)
    )


def _is_our_own(path: Path) -> bool:
    """Return True if `buildmatrix lock` wrote a file."""
    try:
        return begins_with(path, LOCK_HEADER)
    except OSError:
        return False


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
    return tuple(_read_package(path, target) for path in wheels)


def _read_package(path: Path, target: Target) -> Package:
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
                self._build_wheel(folder, target) for folder in own_projects(self._root, target)
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

    def _build_wheel(self, folder: str, target: Target) -> tuple[str, bytes]:
        built = self._built.get(folder)
        if built is None:
            built = self._built[folder] = _build(
                self._root / folder, target.python, self._root, self._offline
            )
        if isinstance(built, str):
            label = posixpath.normpath(posixpath.join(folder, "pyproject.toml"))
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
