"""Assign the parts of a project's locks to backends.

A part (an extra, a group, a file of its own) is for a backend if its name says so and its locked
distributions do not contradict. An environment of pixi is whole, so its packages are enough. Other
parts are left to the user, with the line to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import backend_build, distribution
from buildmatrix.catalogue.releases import runtime_of_build
from buildmatrix.facts.files import begins_with
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.condalock import DEFAULT_ENVIRONMENT, locked_pythons
from buildmatrix.locks.model import CondaPackage, LeftOut, Package
from buildmatrix.locks.pinned import is_pinned
from buildmatrix.locks.requirement_files import read_requirements
from buildmatrix.locks.taken import selection_of, trouble_with
from buildmatrix.matrix import kinds
from buildmatrix.matrix.document import toml_string
from buildmatrix.matrix.model import (
    LOCK_HEADER,
    PLATFORM,
    Target,
    bare_target,
    is_conda_lock,
    is_pixi_lock,
    is_pylock,
)

#: Locks that hold a whole project, the best known first.
WHOLE = ("uv.lock", "poetry.lock", "Pipfile.lock", "pixi.lock", "conda-lock.yml")
#: Folders that projects have locks in, beside their own.
_FOLDERS = ("", "locks", "uv.lock.d", "requirements")
#: How accelerators are called beside the names of the catalogue. What `gpu` is, the files say.
_NAMES = {"cu": "cuda", "cpuonly": "cpu", "torch-cpu": "cpu"}
_ANY = "gpu"
_WORD = re.compile(r"([a-z]+)(\d*)")
#: A toolkit in the address of an index: `/whl/cu128/`, `cuda13.0-ubi9`, `rocm7.14`.
_TOOLKIT = re.compile(r"(?<![a-z])(cu|cuda|rocm)(\d{1,3}(?:\.\d{1,3})?)(?![0-9])")
#: Distributions whose version is that of the toolkit.
_RUNTIMES = {
    "cuda": re.compile(r"nvidia-cuda-runtime(-cu\d+)?|conda:cuda-version"),
    "rocm": re.compile(r"rocm-sdk-core"),
}


class LockedPart(Struct, frozen=True):
    """The part of a lock that a backend installs."""

    backend: str
    #: Version line of the toolkit, `12.8`, or only its first number; empty where nothing says it.
    runtime: str
    lock: str
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: Of pixi; empty for another lock.
    environment: str = ""
    #: Python of the environment, `3.12`; empty if it has none.
    python: str = ""

    @property
    def name(self) -> str:
        """Its extra, group or environment; empty for a whole lock."""
        return self.environment or next(iter((*self.extras, *self.groups)), "")

    @property
    def label(self) -> str:
        """The lock with its parts, `uv.lock[cpu]`."""
        parts = [*self.extras, *(f":{name}" for name in self.groups)]
        parts += [self.environment] if self.environment else []
        return f"{self.lock}[{','.join(parts)}]" if parts else self.lock

    @property
    def key(self) -> str:
        """The setting of a specification that takes it."""
        if self.environment:
            return "environment"
        return "extras" if self.extras else "groups" if self.groups else "lock"

    def setting(self, name: str) -> str:
        """Return the line of a specification that takes the part of this name."""
        value = toml_string(name)
        return f"{self.key} = [{value}]" if self.key.endswith("s") else f"{self.key} = {value}"

    @property
    def line(self) -> str:
        """The line of a specification that takes it."""
        return self.setting(self.name or self.lock)


class OpenPart(Struct, frozen=True):
    """A part that nothing could be decided about."""

    label: str
    why: str
    #: The line that takes it; empty where it cannot be installed.
    line: str
    #: Extra, group or environment.
    name: str = ""


class LockedProject(Struct):
    """The parts of a project's locks, by backend."""

    #: Names in a specification.
    locks: tuple[str, ...]
    python: str
    parts: list[LockedPart] = field(default_factory=list)
    open: list[OpenPart] = field(default_factory=list)
    #: Backend → the Pythons that can install all of its parts, the best first.
    pythons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Further parts of a whole lock that can be installed together.
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: True if parts hold folders, which `install-project` builds.
    has_folders: bool = False

    @property
    def lock(self) -> str:
        """One value of `lock` for all backends; empty where they differ otherwise."""
        if len({part.lock for part in self.parts}) == 1:
            return self.parts[0].lock
        common = {part.lock.replace(part.backend, "{backend}") for part in self.parts}
        return common.pop() if len(common) == 1 else ""

    def leave_open(self, part: LockedPart, why: str, *, is_usable: bool = True) -> None:
        """Leave a part to the user; with the line to write if it can be installed."""
        self.open.append(OpenPart(part.label, why, part.line if is_usable else "", part.name))


def find_locks(folder: Path) -> tuple[Path, ...]:
    """The locks of a project, those of one kind: a whole lock, else files for the backends."""
    for name in WHOLE:
        if (path := folder / name).is_file():
            return (path,)
    for kind in (_is_other_pylock, _is_hashed):
        found = [
            path
            for place in _FOLDERS
            if (folder / place).is_dir()
            for path in sorted((folder / place).iterdir())
            if path.is_file() and kind(path)
        ]
        if found:
            # The nearest of several folders with locks.
            return tuple(path for path in found if path.parent == found[0].parent)
    return ()


def divide_inputs(paths: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The locks among files that somebody named, and the others."""
    locks = tuple(
        path
        for path in paths
        if path.name in WHOLE
        or is_conda_lock(path.name)
        or (path.is_file() and (_is_other_pylock(path) or _is_hashed(path)))
    )
    return locks, tuple(path for path in paths if path not in locks)


def _is_other_pylock(path: Path) -> bool:
    return is_pylock(path.name) and not begins_with(path, LOCK_HEADER)


def _is_hashed(path: Path) -> bool:
    if path.suffix != ".txt" or "requirements" not in f"{path.parent.name} {path.name}":
        return False
    try:
        return is_pinned(path, path.name) and all(
            line.is_hashed for line in read_requirements(path, path.name).lines
        )
    except SpecError:
        return False


def read_locked(
    root: Path,
    locks: Sequence[str],
    pythons: Sequence[str],
    catalogue: Catalogue,
    base: str,
    *,
    install_project: bool = False,
) -> LockedProject:
    """Assign the parts of `locks`, paths below `root`, to backends.

    Uses the first of `pythons` with which most of these parts can be installed. A part that none of
    `pythons` can install is open. Environments of conda have a Python of their own.

    Raises:
        SpecError, UsageError: a lock cannot be read for any of `pythons`.
    """
    own = [
        python
        for lock in filter(is_conda_lock, locks)
        for python in locked_pythons(root / lock, lock, PLATFORM).values()
        if python
    ]
    pythons = tuple(dict.fromkeys(own)) or pythons
    problems: dict[str, SpecError | UsageError] = {}
    projects: dict[str, LockedProject] = {}
    obstacles: dict[LockedPart, dict[str, str | None]] = {}
    for python in pythons:
        reader = _LockReader(root, python, catalogue, base, install_project)
        try:
            projects[python] = reader.read(locks)
        except (SpecError, UsageError) as error:
            problems.setdefault(error.message, error)
            continue
        for part in projects[python].parts:
            obstacles.setdefault(part, {})[python] = reader.obstacle(part)
    if not projects:
        first = next(iter(problems.values()))
        if len(problems) == 1:
            raise first
        offered = listing(sorted(pythons))
        raise UsageError(f"{first.message}; the Pythons that are offered are {offered}")
    fitting = {
        part: tuple(python for python, why in found.items() if why is None)
        for part, found in obstacles.items()
    }

    def count(python: str) -> int:
        return sum(python in fitting[part] for part in projects[python].parts)

    project = projects[max(projects, key=count)]
    parts, project.parts = project.parts, []
    shared: dict[str, tuple[str, ...]] = {}
    for part in parts:
        before = shared.get(part.backend, fitting[part])
        both = tuple(python for python in before if python in fitting[part])
        if both:
            shared[part.backend] = both
            project.parts.append(part)
        else:
            why = obstacles[part][project.python] or f"it is not for Python {listing(before)}"
            project.leave_open(part, why, is_usable=False)
    order = sorted(projects, key=lambda python: python != project.python)
    project.pythons = {
        backend: tuple(python for python in order if python in fits)
        for backend, fits in shared.items()
    }
    reader = _LockReader(root, project.python, catalogue, base, install_project)
    project.has_folders = any(map(reader.has_folders, project.parts))
    return project


@dataclass(frozen=True)
class _LockReader:
    """Reads locks for one Python."""

    root: Path
    python: str
    catalogue: Catalogue
    base: str
    install_project: bool

    def read(self, locks: Sequence[str]) -> LockedProject:
        project = LockedProject(tuple(locks), self.python)
        if len(locks) == 1 and is_pixi_lock(locks[0]):
            self._divide_environments(locks[0], project)
            return project
        if len(locks) == 1 and self._find_backend(_middle(locks[0])) is None:
            self._divide(locks[0], project)
            return project
        for lock in locks:
            self._take(LockedPart("", "", lock), _middle(lock), project)
        return project

    def _divide(self, lock: str, project: LockedProject) -> None:
        """Assign extras and groups of one lock."""
        base = LockedPart("cpu", "", lock)
        packages, left_out = self._read(base)
        parts = [replace(base, extras=(extra,)) for extra in left_out.extras]
        parts += [replace(base, groups=(group,)) for group in left_out.groups]
        for part in parts:
            self._take(part, part.name, project)
        if plain := self._plain_twin(base, left_out, project):
            project.parts.append(plain)
        held = self._backends(packages, "cpu")
        if not project.parts and len(held) == 1:
            backend, runtime = next(iter(held.items()))
            project.parts.append(replace(base, backend=backend, runtime=runtime))
        elif not held and not any(part.backend == "cpu" for part in project.parts):
            project.parts.append(base)
        elif not project.parts:
            why = f"it holds distributions for {listing(sorted(held))}"
            project.leave_open(base, why)
        mine = {part.name for part in project.parts} | {part.name for part in project.open}
        project.extras = tuple(name for name in left_out.more_extras if name not in mine)
        project.groups = tuple(name for name in left_out.more_groups if name not in mine)
        for part in parts:
            together = project.extras if part.extras else project.groups
            if part.name not in mine and part.name not in together:
                project.leave_open(part, "its name names no backend")

    def _divide_environments(self, lock: str, project: LockedProject) -> None:
        """Assign environments of pixi: `cuda` before `cuda-test`, and then the default one.

        That, or the only one, is for the CPU if its packages are for nothing else.
        """
        pythons = locked_pythons(self.root / lock, lock, PLATFORM)
        parts = [
            LockedPart("", "", lock, environment=name, python=python)
            for name, python in pythons.items()
        ]

        def rank(part: LockedPart) -> tuple[bool, bool, int]:
            is_named = self._find_backend(part.name) is not None
            return not is_named, part.name != DEFAULT_ENVIRONMENT, len(part.name)

        for part in sorted(parts, key=rank):
            if complaint := kinds.ENVIRONMENT.complaint(part.name):
                project.leave_open(part, f"its name {complaint}", is_usable=False)
                continue
            is_usual = part.name == DEFAULT_ENVIRONMENT or len(parts) == 1
            self._take(part, part.name, project, is_usual=is_usual)

    def _plain_twin(
        self, base: LockedPart, left_out: LeftOut, project: LockedProject
    ) -> LockedPart | None:
        """The extra for the CPU beside those for accelerators: `onnx` beside `onnx-gpu`."""
        others = [extra for part in project.parts for extra in part.extras]
        for extra in left_out.extras:
            if others and all(other.startswith(f"{extra}-") for other in others):
                part = replace(base, extras=(extra,))
                if not self._backends(self._read(part)[0], "cpu"):
                    return part
        return None

    def _take(
        self, part: LockedPart, name: str, project: LockedProject, *, is_usual: bool = False
    ) -> None:
        """Assign a part whose name says for which backend it is; of environments, the packages."""
        named = self._find_backend(name)
        if named is None and not part.environment:
            if not part.name:
                project.leave_open(part, "its name names no backend")
            return
        backend, runtime = named or ("cpu", "")
        try:
            packages, _ = self._read(part)
            held = self._backends(packages, backend)
        except (SpecError, UsageError) as error:
            project.leave_open(part, error.message.splitlines()[0], is_usable=False)
            return
        others = sorted(set(held) - {backend})
        if (backend == _ANY or named is None) and len(held) == 1:
            backend = others[0]
        elif named is None and not held and not is_usual:
            project.leave_open(part, "its name and its packages name no backend")
            return
        elif others or backend == _ANY:
            found = " and ".join(others) or "no backend that is known"
            too = "" if backend == _ANY or named is None else ", too"
            project.leave_open(part, f"what is locked in it is for {found}{too}")
            return
        if reason := backend_build(self.catalogue, backend).unbuildable:
            project.leave_open(part, f"no image can be made: {reason}", is_usable=False)
            return
        said = (pair for package in packages for pair in _toolkits(package))
        of_index = next((version for of, version in said if of == backend), "")
        runtime = _closer(runtime, held.get(backend) or of_index)
        for other in project.parts:
            if (other.backend, other.runtime) == (backend, runtime):
                why = f"{other.label} is for {backend} {runtime}".rstrip() + " already"
                project.leave_open(part, why)
                return
        project.parts.append(replace(part, backend=backend, runtime=runtime))

    def _find_backend(self, name: str) -> tuple[str, str] | None:
        """The backend that a name says, and its toolkit; None for no backend, or for several."""
        words = re.split(r"[^a-z0-9]+", name.lower())
        found: dict[str, str] = {}
        for word, following in zip(words, [*words[1:], ""], strict=True):
            match = _WORD.fullmatch(word)
            if match is None:
                continue
            backend = self._names.get(match[1] if match[1] != "cu" or match[2] else "")
            if backend is None:
                continue
            number = match[2]
            if len(number) == 1 or (len(number) == 2 and backend == "cuda"):
                minor = f".{following}" if following.isdecimal() else ""
                found[backend] = f"{number}{minor}"
            else:
                found[backend] = (runtime_of_build(f"x{number}") or "") if number else ""
        return next(iter(found.items())) if len(found) == 1 else None

    @cached_property
    def _names(self) -> Mapping[str, str]:
        names = {
            name: entry.name
            for entry in self.catalogue.backends.values()
            for name in (entry.name, *entry.aliases)
        }
        return {**names, **_NAMES, _ANY: _ANY}

    def _target(self, part: LockedPart) -> Target:
        backend, base = part.backend or "cpu", self.base.format(python=self.python)
        return replace(
            bare_target(backend, backend, base=base, python=self.python, lock=part.lock),
            committed_lock=part.lock,
            extras=part.extras,
            groups=part.groups,
            environment=part.environment,
            install_project=self.install_project,
        )

    def _read(self, part: LockedPart) -> tuple[Sequence[Package], LeftOut]:
        target = replace(self._target(part), python=part.python or self.python)
        lock = read_committed(selection_of(self.root, target))[0].lock
        return (*lock.packages, *lock.conda), lock.left_out

    def has_folders(self, part: LockedPart) -> bool:
        """Return True if a folder of the user is locked in the part; pixi builds recipes itself."""
        packages = (item for item in self._read(part)[0] if not isinstance(item, CondaPackage))
        return any(package.is_local for package in packages)

    def obstacle(self, part: LockedPart) -> str | None:
        """Return the reason why the part cannot be installed with this Python; None if it can.

        A stale lock is no obstacle: `buildmatrix lock` reports it.
        """
        target = self._target(part)
        why = trouble_with(self.root, target, allow_stale=True)
        return why and why.removeprefix(f"{target.id}: ")

    def _backends(self, packages: Sequence[Package], on: str = "") -> dict[str, str]:
        """The backends that packages are for, each with its toolkit where something says it.

        Does not count what may as well be on the backend `on`.
        """
        backends: dict[str, str] = {}
        for package in packages:
            match = distribution(package.name, package.version, self.catalogue)
            if match is None or match.vendor is None or match.weight != "strong":
                continue
            if on in match.tolerated_in:
                continue
            backend = match.backend
            said = match.toolkit if match.toolkit and match.toolkit.isdecimal() else ""
            backends[backend] = _closer(backends.get(backend, ""), said)
        for package in packages:
            for backend, runtime in _toolkits(package):
                if backend in backends:
                    backends[backend] = _closer(backends[backend], runtime)
        return backends


def _toolkits(package: Package) -> Iterator[tuple[str, str]]:
    """Toolkits that the version or the index of a package says, with both of their numbers."""
    places = [package.version.partition("+")[2], package.index or ""]
    places += [wheel.url.rpartition("/")[0] for wheel in package.wheels[:1]]
    for place in places:
        for match in _TOOLKIT.finditer(place):
            name = "rocm" if match[1] == "rocm" else "cuda"
            yield name, match[2] if "." in match[2] else runtime_of_build(f"x{match[2]}") or ""
    for backend, pattern in _RUNTIMES.items():
        if pattern.fullmatch(package.name) and "." in package.version:
            yield backend, ".".join(package.version.partition("+")[0].split(".")[:2])


def _closer(one: str, other: str) -> str:
    """Return the more exact of two version lines that agree, else the first."""
    if not one or other.startswith(f"{one}."):
        return other or one
    return one


def _middle(lock: str) -> str:
    """Return the middle of a lock's name: `cuda` of `pylock.cuda.toml`."""
    name = lock.rpartition("/")[2]
    return name.removeprefix("pylock").rpartition(".")[0]
