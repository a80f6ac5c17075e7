"""What is to be asked of the index, for one target, before it is known what that target gets."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.catalogue.load import load
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.committed import is_lock, read_committed
from buildmatrix.locks.environment import is_environment, read_environment
from buildmatrix.locks.explain import NoSolution
from buildmatrix.locks.lookup import Pins, find_files, lacks_files
from buildmatrix.locks.model import LeftOut, Lock, Staleness
from buildmatrix.locks.pinned import is_pinned
from buildmatrix.locks.preview import Resolution, request_of, resolve
from buildmatrix.locks.previewed import packages_of
from buildmatrix.locks.recent import Recent
from buildmatrix.locks.requirement_files import add_file, add_line, check
from buildmatrix.locks.status import staleness
from buildmatrix.locks.uv import Uv
from buildmatrix.locks.uvsettings import settings_of
from buildmatrix.locks.wanted import Wanted
from buildmatrix.locks.wanted_project import add_project, add_target
from buildmatrix.parsing import parse_wheel_name
from buildmatrix.phrases import listing
from buildmatrix.progress import Progress
from buildmatrix.sources.asked import Asked, label_of
from buildmatrix.spec.model import Spec, Target
from buildmatrix.text import shown
from buildmatrix.urls import path_in

#: How files say which Pythons they are for.
_PYTHON = re.compile(
    r"""^\s*(?:requires-python|python-versions|"python_version":)\s*=?\s*"([^"]*)"|"""
    r"""^\#.*with\ Python\ ([0-9.]+)""",
    re.MULTILINE | re.VERBOSE,
)
#: How uv's account, in terms of the target, names what a line asks for.
_REQUIRED = re.compile(r"\b(?=(?:you require|and) ([A-Za-z0-9][A-Za-z0-9._-]*)[=<>!~\[ ,.])")
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    """One target, and how to learn what it gets."""

    target: Target
    #: Questions with the same key have the same answer.
    key: str
    ask: Callable[[], object]
    #: The lock that an answer makes for this target.
    finish: Callable[[object], Lock]
    stale: Staleness | None
    origin: str


@dataclass(frozen=True, slots=True)
class Questions:
    """Makes the questions of one run."""

    uv: Uv
    spec: Spec | None
    root: Path
    recent: Recent
    progress: Progress
    jobs: int
    offline: bool
    missing_ok: bool
    relock: bool = False

    def of_target(self, target: Target) -> Question:
        """A target of the specification: its lock as it is, or what it would be."""
        assert self.spec is not None
        root = self.spec.root
        if not self.relock and (root / target.lock).exists():
            ask = Ask(root / target.lock, target.lock, target)
            pins, _ = read_committed(ask)
            return self._locked(target, pins, self._staleness(target), target.lock)
        wanted = Wanted(settings=settings_of(root), tolerant=self.missing_ok)
        add_target(wanted, root, target)
        wanted.left_out = LeftOut()  # The specification says which parts a target gets.
        return self._unlocked(target, wanted, f"resolved from {', '.join(wanted.files)}")

    def of_source(self, target: Target, asked: Asked) -> Question:
        """A SOURCE, for a target that asks for nothing else. Raises `SpecError`, `UsageError`."""
        path = self.root / asked.name
        label = label_of(asked.name, self.root) if asked.is_file else shown(asked.name)
        wanted = Wanted(settings=settings_of(self.root), tolerant=self.missing_ok)
        ask = Ask(path, label, target, asked.extras, asked.groups, asked.without)
        if asked.is_file and self.missing_ok and not path.exists():
            return self._unlocked(target, Wanted(), f"nothing: {label} is not there")
        match asked.kind:
            case "lock":
                return self._committed(ask)
            case "requirements":
                if is_pinned(path, label):
                    return self._committed(ask)
                add_file(wanted, path, label)
            case "pyproject":
                add_project(wanted, ask)
            case "pypi":
                add_line(wanted, asked.name, str(asked), 0, self.root)
            case _:
                where = asked.name if "://" in asked.name else str(path.absolute())
                add_line(wanted, where, str(asked), 0, self.root)
        return self._unlocked(target, wanted, f"resolved from {label}")

    def _committed(self, ask: Ask) -> Question:
        pins, stale = read_committed(ask)
        owner = self._owner(ask)
        if owner is not None:
            stale = self._staleness(owner)
        return self._locked(ask.target, pins, stale, ask.label)

    def _staleness(self, target: Target) -> Staleness | None:
        assert self.spec is not None
        why = staleness(self.spec, target)
        return Staleness(why) if why else None

    def _owner(self, ask: Ask) -> Target | None:
        """The target whose lock a file is."""
        if self.spec is None or not is_lock(ask.path.name):
            return None
        path, root = ask.path.absolute(), self.spec.root.absolute()
        mine = (t for t in self.spec.targets if root / t.lock == path)
        return next(mine, None)

    def _locked(self, target: Target, pins: Pins, stale: Staleness | None, label: str) -> Question:
        lock = pins.lock
        missing = [one for one in lock.packages if lacks_files(one)]
        parts = [target.python, target.platform, target.base.final, target.torch, label]
        key = _key("lock", lock.digest, parts, sorted(target.index.items()), target.id)
        if missing:
            shared = [[one.name, one.version, one.index] for one in missing]
            key = _key("files", lock.digest, parts, sorted(target.index.items()), shared)

        def ask() -> Lock:
            if missing:
                self.progress.step(target.id, f"{label}: looking up {len(missing)} files")
            return find_files(
                self.uv, target, pins, self.recent, offline=self.offline, jobs=self.jobs
            )

        def finish(answer: object) -> Lock:
            assert isinstance(answer, Lock)
            return replace(answer, target=target.id)

        return Question(target, key, ask, finish, stale, label)

    def _present(self, wanted: Wanted) -> set[str]:
        """What pip finds installed by conda: it takes that from an index only where a line says so.

        What the conda packages require is unknown, and so is whether pip would find that, too.
        """
        if not wanted.conda:
            return set()
        known = load(self.spec.catalogue_files if self.spec is not None else ()).conda
        names = {known.get(one.name, one.name) for one in wanted.conda}
        return names.difference(line.name for line in wanted.lines)

    def _unlocked(self, target: Target, wanted: Wanted, origin: str) -> Question:
        check(wanted)
        target = replace(target, drop=(*target.drop, *sorted(self._present(wanted))))
        key = request_of(target, wanted).key(self.uv)

        def ask() -> Resolution:
            try:
                return resolve(
                    self.uv, target, wanted, self.recent, self.progress, offline=self.offline
                )
            except NoSolution as error:
                from buildmatrix.sources.resolution.nearest import ask_index, without_build

                listing = None if self.offline else ask_index
                missing = without_build(target, wanted.lines, listing)
                told = f"{error.message}{_asked_in(wanted, error.message)} {missing}".rstrip()
                raise NoSolution(told, error.python) from error

        def finish(answer: object) -> Lock:
            assert isinstance(answer, Resolution)
            packages = packages_of(answer, target, wanted)
            return Lock(
                path=Path(target.lock),
                target=target.id,
                packages=packages,
                inputs=f"sha256:{key}",
                digest=f"sha256:{_key(answer.body)}",
                left_out=wanted.left_out,
                conda=tuple(wanted.conda),
                unread=tuple(wanted.unread),
            )

        return Question(target, key, ask, finish, None, origin)


def _asked_in(wanted: Wanted, message: str) -> str:
    """The lines that a conflict is about, as a sentence."""
    names = {canonicalize_name(name) for name in _REQUIRED.findall(message)}
    places = [
        str(line)
        for line in (*wanted.lines, *wanted.constraints)
        if line.name in names and line.line
    ]
    return f" Asked for in {listing(dict.fromkeys(places))}." if places else ""


def python_of(asked: Asked, root: Path) -> str:
    """The range of Pythons that a source is for, as it says; empty where it does not."""
    if asked.kind == "wheel":
        return _python_of_wheel(asked.name)
    if not asked.is_file:
        return ""
    try:
        with (root / asked.name).open("rb") as file:
            text = file.read(_LARGEST).decode(errors="replace")
    except (OSError, ValueError):
        return ""
    if is_environment(asked.name):
        return read_environment(text, asked.name).python
    found = list(_PYTHON.finditer(text))
    if not found:
        return ""
    # Poetry says it at the end, behind what each distribution says of itself.
    said = found[-1 if asked.name.endswith("poetry.lock") else 0]
    wanted = said[1] or said[2]
    return f"=={wanted}.*" if re.fullmatch(r"3\.\d+", wanted) else wanted


def _python_of_wheel(name: str) -> str:
    """The Pythons that a wheel's name says it is for."""
    filename = posixpath.basename(path_in(name))
    try:
        tags = parse_wheel_name(filename)[3]
    except (InvalidWheelFilename, InvalidVersion):
        return ""
    for tag in sorted(tags, key=str):
        if found := re.fullmatch(r"cp3(\d+)", tag.interpreter):
            return f">=3.{found[1]}" if tag.abi in ("abi3", "none") else f"==3.{found[1]}.*"
    return ""


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
