"""Questions to the index for one target, and explanations of routed families without a build."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import listing, shown
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.releases import gap, runtime_of_build, toolkit_line
from buildmatrix.locks.committed import describe_unchecked, is_lock, read_committed
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.lookup import Pins, Recent, find_files, lacks_files
from buildmatrix.locks.model import LeftOut, Lock, Staleness
from buildmatrix.locks.pinned import pin_of
from buildmatrix.locks.plan import TORCH_FAMILY, index_of
from buildmatrix.locks.preview import PreviewedResolution, packages_of, request_key, resolve
from buildmatrix.locks.requirement_files import check
from buildmatrix.locks.requirement_lines import RequirementSet, applies
from buildmatrix.locks.selection import LockSelection, marker_environment, nearest_build
from buildmatrix.locks.status import staleness
from buildmatrix.locks.taken import read_taken, selection_of
from buildmatrix.locks.target_requirements import add_target
from buildmatrix.locks.uv import NoSolution, Uv, settings_of
from buildmatrix.matrix.model import ANY, Spec, Target
from buildmatrix.sources.model import Declared

# Routed families without a build


#: Names of the files that an index has of a distribution; raises `UndecidedError`.
Listing = Callable[[str, str], Iterable[str]]


def ask_index(index: str, name: str) -> tuple[str, ...]:
    """A `Listing` that asks the index itself."""
    from buildmatrix.locks.index.client import Client

    with Client() as client:
        return tuple(file.filename for file in client.project(index, name))


def describe_missing_builds(
    target: Target, lines: Iterable[RequirementLine], listing: Listing | None
) -> str:
    """Describe the missing builds of pinned members of a family that `target` takes from an index.

    Empty where that is not the reason, or where it is not known. Without a `listing` no index is
    asked.
    """
    environment = marker_environment(target)
    sentences = (
        sentence
        for line in lines
        if applies(line, environment) and (version := pin_of(line)) is not None
        for sentence in _missing(target, line.name, version, listing, load())
    )
    return " ".join(dict.fromkeys(sentences))


def _missing(
    target: Target, name: str, version: str, listing: Listing | None, catalogue: Catalogue
) -> Iterator[str]:
    platform = (
        target.backend if target.runtime in ("", ANY) else f"{target.backend} {target.runtime}"
    )
    index = index_of(name, target)
    if index is None:
        missing = None
        if target.torch is not None and name in TORCH_FAMILY:
            missing = gap(name, version, target.backend, target.runtime, catalogue)
        if missing is not None:
            instead = missing.nearest
            yield _sentence(
                f"{name} {missing.release}",
                platform,
                f"{instead.release}, from {instead.route}" if instead is not None else None,
            )
        return
    if listing is None:
        return
    try:
        files = listing(index, name)
    except UndecidedError:
        return
    release = version.partition("+")[0]
    nearest = nearest_build(version, target, files, _marks(target, catalogue))
    if nearest is None or nearest.partition("+")[0] == release:
        return
    yield _sentence(f"{name} {release}", f"{platform} on {shown(index)}", nearest)


def _sentence(release: str, platform: str, nearest: str | None) -> str:
    instead = f"the nearest that has one is {nearest}" if nearest else "no release has one"
    return f"{release} has no build for {platform}; {instead}."


def _marks(target: Target, catalogue: Catalogue) -> list[str]:
    """Starts of local versions of builds for the target, the best first."""
    entry = catalogue.backends.get(target.backend)
    routes = [route.name for route in entry.indexes] if entry is not None else []
    if target.runtime in ("", ANY):
        return [*routes, target.backend]
    line = toolkit_line(target.runtime)
    exact = [item for item in routes if runtime_of_build(item) == target.runtime]
    near = [
        item
        for item in routes
        if line is not None and toolkit_line(runtime_of_build(item) or "") == line
    ]
    any_runtime = [item for item in routes if runtime_of_build(item) is None]
    own = f"{target.backend}{target.runtime}"
    return list(dict.fromkeys([*exact, own, *reversed(near), *any_runtime]))


# Questions to the index for one target


#: How uv's account, in terms of the target, names what a line asks for.
_REQUIRED = re.compile(r"\b(?=(?:you require|and) ([A-Za-z0-9][A-Za-z0-9._-]*)[=<>!~\[ ,.])")


class IndexQuestion(Struct, frozen=True):
    """One target, and the way to resolve its distributions."""

    target: Target
    #: Questions with the same key have the same answer.
    key: str
    ask: Callable[[], Any]
    #: The lock that an answer of `ask` makes for this target.
    finish: Callable[[Any], Lock]
    stale: Staleness | None
    origin: str
    #: True if an index is asked; else the files say all of it.
    is_asked: bool
    #: One sentence if only the lock's tool, which is not run here, knows that it fits its inputs.
    unchecked: str = ""


class Questions(Struct, frozen=True):
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

    def of_target(self, target: Target) -> IndexQuestion:
        """A target of the specification: its lock as it is, or what it would be."""
        assert self.spec is not None
        root = self.spec.root
        if target.committed_lock:
            pins, stale = read_taken(root, target)
            unchecked = describe_unchecked(selection_of(root, target))
            return self._locked(target, pins, stale, target.lock_label, unchecked)
        if not self.relock and (root / target.lock).exists():
            selection = LockSelection(root / target.lock, target.lock, target)
            pins, _ = read_committed(selection)
            return self._locked(target, pins, self._staleness(target), target.lock)
        requirements = RequirementSet(settings=settings_of(root), tolerant=self.missing_ok)
        add_target(requirements, root, target)
        requirements.left_out = LeftOut()  # The specification says which parts a target gets.
        return self._unlocked(
            target, requirements, f"resolved from {', '.join(requirements.files)}"
        )

    def of_source(self, target: Target, source: Declared) -> IndexQuestion:
        """A SOURCE, for a target that asks for nothing else. Raises `SpecError`, `UsageError`."""
        path, label = self.root / source.name, source.label(self.root)
        requirements = RequirementSet(settings=settings_of(self.root), tolerant=self.missing_ok)
        selection = LockSelection(path, label, target, source.extras, source.groups, source.without)
        if source.is_file and self.missing_ok and not path.exists():
            return self._unlocked(target, RequirementSet(), f"nothing: {label} is not there")
        if source.is_locked(selection):
            return self._committed(selection)
        source.add_to(requirements, selection, self.root)
        return self._unlocked(target, requirements, f"resolved from {label}")

    def _committed(self, selection: LockSelection) -> IndexQuestion:
        pins, stale = read_committed(selection)
        owner = lock_owner(self.spec, selection.path)
        if owner is not None:
            stale = self._staleness(owner)
        unchecked = describe_unchecked(selection)
        return self._locked(selection.target, pins, stale, selection.label, unchecked)

    def _staleness(self, target: Target) -> Staleness | None:
        assert self.spec is not None
        reason = staleness(self.spec, target)
        return Staleness(reason) if reason else None

    def _locked(
        self, target: Target, pins: Pins, stale: Staleness | None, label: str, unchecked: str = ""
    ) -> IndexQuestion:
        lock = pins.lock
        missing = [package for package in lock.packages if lacks_files(package)]
        parts = [target.python, target.platform, target.base.final, target.torch, label]
        key = _key("lock", lock.digest, parts, sorted(target.index.items()), target.id)
        if missing:
            shared = [[package.name, package.version, package.index] for package in missing]
            key = _key("files", lock.digest, parts, sorted(target.index.items()), shared)

        def ask() -> Lock:
            if missing:
                self.progress.step(target.id, f"{label}: looking up {len(missing)} files")
            return find_files(
                self.uv, target, pins, self.recent, offline=self.offline, jobs=self.jobs
            )

        unchecked = "" if stale else unchecked
        is_asked = bool(missing)
        return IndexQuestion(target, key, ask, lambda it: it, stale, label, is_asked, unchecked)

    def _present(self, requirements: RequirementSet) -> set[str]:
        """Return the distributions that conda installs: pip takes them from an index only if a line
        says so.

        What the conda packages require is unknown, and so is whether pip would find that, too.
        """
        if not requirements.conda:
            return set()
        equivalents = load(self.spec.catalogue_files if self.spec is not None else ()).conda
        names = {equivalents.get(package.name, package.name) for package in requirements.conda}
        return names.difference(line.name for line in requirements.lines)

    def _unlocked(self, target: Target, requirements: RequirementSet, origin: str) -> IndexQuestion:
        check(requirements)
        target = replace(target, drop=(*target.drop, *sorted(self._present(requirements))))
        key = request_key(self.uv, target, requirements)

        def ask() -> PreviewedResolution:
            try:
                return resolve(
                    self.uv, target, requirements, self.recent, self.progress, offline=self.offline
                )
            except NoSolution as error:
                listing = None if self.offline else ask_index
                missing = describe_missing_builds(target, requirements.lines, listing)
                places = _requested_in(requirements, error.message)
                message = f"{error.message}{places} {missing}".rstrip()
                raise NoSolution(message, error.python) from error

        def finish(answer: PreviewedResolution) -> Lock:
            return Lock(
                path=Path(target.lock),
                packages=packages_of(answer, target, requirements),
                inputs=f"sha256:{key}",
                digest=f"sha256:{_key(answer.body)}",
                left_out=requirements.left_out,
                conda=tuple(requirements.conda),
                unread=tuple(requirements.unread),
            )

        return IndexQuestion(target, key, ask, finish, None, origin, is_asked=True)


def lock_owner(spec: Spec | None, path: Path) -> Target | None:
    """The target of `spec` whose lock a file is."""
    if spec is None or not is_lock(path.name):
        return None
    root = spec.root.absolute()
    owners = (target for target in spec.targets if root / target.lock == path.absolute())
    return next(owners, None)


def _requested_in(requirements: RequirementSet, message: str) -> str:
    """The lines that a conflict is about, as a sentence."""
    names = {canonicalize_name(name) for name in _REQUIRED.findall(message)}
    places = [
        str(line)
        for line in (*requirements.lines, *requirements.constraints)
        if line.name in names and line.line
    ]
    return f" Asked for in {listing(dict.fromkeys(places))}." if places else ""


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
