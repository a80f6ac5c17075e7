"""Subjects of rules: the distributions of a target, locked or installed, and its image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct

from buildmatrix.base.text import PYPI
from buildmatrix.catalogue.leftovers import Leftover
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.releases import requirements, runtime_of_build, toolkit_line
from buildmatrix.facts.inventory.conda import NPM
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution, resolve
from buildmatrix.facts.loader_binding import Unbound, find_unbound
from buildmatrix.judge.evidence import HELD, is_foreign, total
from buildmatrix.judge.model import Verdict
from buildmatrix.judge.tree import Standing, TreeView
from buildmatrix.judge.verdicts import verdicts
from buildmatrix.locks.conda_requests import chain_packages
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.locks.selection import marker_environment
from buildmatrix.matrix.model import Policy, Target

#: Machine in the platform tags of wheels (PEP 425), by platform.
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
#: Links of a chain that are shown; real ones have up to ten.
_LONGEST = 60
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
SubjectT = TypeVar("SubjectT", bound="Subject")


class Present(Struct, frozen=True):
    """A distribution in a lock or an image."""

    name: str
    version: str
    #: File that says so: the lock, or the metadata folder.
    path: str
    #: Bytes to download, or on disk.
    size: int | None
    #: Index that it is locked from.
    index: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def owner(self) -> str:
        """`name==version`, as files name it as their owner."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Subject:
    """One target, as far as its distributions are known."""

    target: Target
    catalogue: Catalogue
    policy: Policy
    lock: Lock | None
    present: tuple[Present, ...]

    @property
    def backend(self) -> str:
        """The backend that everything should be for."""
        return self.target.backend

    @property
    def own_vendor(self) -> str | None:
        """The vendor of that backend; None for a backend of no vendor."""
        return self.catalogue.vendor_of(self.backend)

    @property
    def incomplete(self) -> frozenset[str | None]:
        """Distributions (`name==version`) whose binaries were not all read to their ends."""
        return frozenset()

    @cached_property
    def answers(self) -> dict[tuple[object, ...], object]:
        """Results of functions decorated with `once`."""
        return {}

    @cached_property
    def packages(self) -> dict[str, Package]:
        """The locked packages by name."""
        return {package.name: package for package in self.lock.packages} if self.lock else {}

    @cached_property
    def matches(self) -> tuple[tuple[Present, DistributionMatch], ...]:
        """The distributions that the catalogue knows."""
        pairs = (
            (present, distribution(present.name, present.version, self.catalogue))
            for present in self.present
        )
        return tuple((present, match) for present, match in pairs if match is not None)

    @cached_property
    def line(self) -> str | None:
        """The toolkit line of the target: of its runtime, else of most of its distributions.

        Of lines that are equally frequent the newest; None where no distribution says its own.
        """
        line = toolkit_line(self.target.runtime)
        if line is not None:
            return line
        counted = Counter(line for _, _, line in self.lined)
        return max(counted, key=lambda line: (counted[line], int(line)), default=None)

    @cached_property
    def lined(self) -> tuple[tuple[Present, DistributionMatch, str], ...]:
        """The distributions of this backend that are for one toolkit line, and that line."""
        return tuple(
            (present, match, line)
            for present, match in self.matches
            if match.backend == self.backend and (line := _line(match)) is not None
        )

    def is_foreign(self, item: Evidence | DistributionMatch) -> bool:
        """Return True if a thing belongs to another vendor than the target's backend does."""
        return is_foreign(item, self.backend, self.catalogue)

    @property
    def standings(self) -> Mapping[str, Standing]:
        """Standings of distributions' names by their bytes, by `name==version`."""
        return {}

    def is_public(self, name: str) -> bool:
        """Return True if a distribution is locked as the public index's file."""
        package = self.packages.get(name)
        return package is not None and (
            any(wheel.is_public for wheel in package.wheels)
            or (package.index or "").rstrip("/") == PYPI.rstrip("/")
        )

    def counts(self, present: Present, match: DistributionMatch) -> bool:
        """Return True if the catalogue's entry for a name and a version applies to a file.

        A name that can be built for several backends is a hypothesis, and companies have other
        files under public names. Bytes that were read decide; else the file must be the public
        index's, or foreign distributions must come with it. A local version is explicit.
        """
        standing = self.standings.get(present.owner)
        if match.is_build and standing in ("held", "refuted"):
            return standing == "held"
        if not match.is_build or "+" in match.entry:
            return True
        if present.name not in self.packages or self.is_public(present.name):
            return True
        return any(
            other.weight == "strong"
            and other.vendor == match.vendor
            and present.name in (link.name for link in self.path_to(brought.name)[:-1])
            for brought, other in self.matches
        )

    @cached_property
    def askers(self) -> frozenset[str]:
        """Dependents of distributions, by the lock: names, and requirement lines."""
        return frozenset(asker for package in self.packages.values() for asker in package.via)

    def is_requested(self, name: str) -> bool:
        """Return True if a requirement line names a distribution, by the lock's records."""
        package = self.packages.get(name)
        return package is not None and any(asker not in self.packages for asker in package.via)

    def path_to(self, name: str) -> tuple[Package, ...]:
        """The packages from one that a requirement line names down to `name`, the shortest way.

        Empty for what the lock does not hold.
        """
        return tuple(self._ways.way(name)[1])

    def chain_to(self, name: str) -> tuple[str, ...]:
        """`images/requirements/base.in:3`, `xgboost 3.4.1`, ... down to distribution `name`.

        Where the lock does not say who asked, the first element is the line of its entry.
        """
        line, packages = self._ways.way(name)
        links = [f"{package.name} {package.version}".rstrip() for package in packages]
        if len(links) > _LONGEST:
            more = len(links) - _LONGEST
            links[_LONGEST // 2 : -(_LONGEST // 2)] = [f"{more} more"]
        return (*filter(None, [line]), *links)

    @cached_property
    def chained(self) -> Mapping[str, Package]:
        """The packages that chains lead through."""
        return self.packages

    @cached_property
    def _ways(self) -> LockWays:
        return LockWays(self.chained)


@dataclass(frozen=True)
class LinkedFiles:
    """Files with what is known of their linking, and where their NEEDED entries lead."""

    inventory: Inventory
    resolution: Resolution

    @cached_property
    def unbound(self) -> tuple[Unbound, ...]:
        """Symbols and versions that the loader would not find."""
        return find_unbound(self.inventory, self.resolution)


@dataclass(frozen=True)
class ImageSubject(Subject):
    """One target whose image was read."""

    inventory: Inventory
    evidence: tuple[Evidence, ...]
    #: Target of each NEEDED entry.
    resolution: Resolution
    #: Caches and package files in it; nothing of these is in the inventory.
    leftovers: tuple[Leftover, ...] = field(default=(), kw_only=True)

    @property
    def noun(self) -> str:
        """Name of the subject in a message."""
        return "the image"

    @cached_property
    def linked(self) -> LinkedFiles:
        """Files and links for rules about symbols."""
        return LinkedFiles(self.inventory, self.resolution)

    @cached_property
    def partial(self) -> frozenset[str]:
        """Binaries that were read only in part: facts about them may be incomplete."""
        return frozenset(
            binary.path for binary in self.inventory.binaries if binary.elf.read is not None
        )

    @cached_property
    def unlinked(self) -> frozenset[str]:
        """Binaries whose dynamic section was not read: their links are unknown."""
        return frozenset(
            binary.path for binary in self.inventory.binaries if not binary.elf.dynamic_read
        )

    @property
    def incomplete(self) -> frozenset[str | None]:
        """See `Subject.incomplete`."""
        return self.tree.incomplete

    @property
    def standings(self) -> Mapping[str, Standing]:
        """See `Subject.standings`."""
        return self.tree.standings

    @cached_property
    def foreign(self) -> tuple[Evidence, ...]:
        """The evidence of other vendors."""
        return tuple(filter(self.is_foreign, self.evidence))

    @cached_property
    def tree(self) -> TreeView:
        """View of the tree that verdicts use."""
        return TreeView(
            self.backend,
            self.line,
            self.inventory,
            self.evidence,
            self.policy,
            self.catalogue,
            self.resolution,
            is_whole=self.lock is not None,
            environment=marker_environment(self.target) if self.target.python else None,
        )

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Verdicts about distributions (`name==version`) by the content of the image alone."""
        return {verdict.owner: verdict for verdict in verdicts(self.tree)}

    @cached_property
    def chained(self) -> Mapping[str, Package]:
        """See `Subject.chained`; npm's packages say themselves who asks for them."""
        packages = [item for item in self.inventory.distributions if item.installer == NPM]
        askers: dict[str, set[str]] = {item.name: set() for item in packages}
        for item in packages:
            askers[item.name].update(line.place for line in item.lines)
            for name in askers.keys() & set(item.requires):
                askers[name].add(item.name)
        chained = chain_packages(self.lock, self.catalogue.conda) if self.lock is not None else {}
        for item in packages:
            via = tuple(sorted(askers[item.name]))
            chained[item.name] = Package(item.name, item.version, None, (), False, via)
        return chained

    @cached_property
    def imported_modules(self) -> frozenset[str]:
        """First names of the modules that Python code imports from other distributions."""
        return frozenset(
            imported.module.partition(".")[0] for imported in self.inventory.python_imports
        )

    def serves_mostly(self, verdict: Verdict) -> bool:
        """Return True if most of a distribution is for this backend."""
        own = total(
            item
            for item in self.evidence
            if item.distribution == verdict.owner
            and item.backend == self.backend
            and item.weight == "strong"
            and item.kind in HELD
        )
        return own > verdict.foreign_bytes

    def is_requested(self, name: str) -> bool:
        """See `Subject.is_requested`; without a lock, what nothing else requires.

        Marks of installers say nothing: uv, and pip that is given a lock, mark everything.
        """
        return super().is_requested(name) if self.lock is not None else name in self._roots

    @cached_property
    def _roots(self) -> frozenset[str]:
        installed = self.inventory.distributions
        required = {
            requirement.name
            for item in installed
            for requirement in requirements(item, self.catalogue)
            if requirement.active and requirement.name != item.name
        }
        return frozenset(item.name for item in installed if item.name not in required)


def once(
    function: Callable[Concatenate[SubjectT, Arguments], Answer],
) -> Callable[Concatenate[SubjectT, Arguments], Answer]:
    """A function of a subject that works once for the same arguments; they have to be hashable.

    Hundreds of node classes differ in a few drivers and architectures, and several rules ask the
    same of each.
    """

    @wraps(function)
    def answer(subject: SubjectT, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        key = (function, args, *kwargs.items())
        if key not in subject.answers:
            subject.answers[key] = function(subject, *args, **kwargs)
        return cast(Answer, subject.answers[key])

    return answer


def _line(match: DistributionMatch) -> str | None:
    if match.toolkit is not None:
        return match.toolkit
    return toolkit_line(runtime_of_build(match.build) or "")


def locked(target: Target, lock: Lock, catalogue: Catalogue, policy: Policy) -> Subject:
    """The target as its lock says it will be."""
    present = locked_packages(
        target, lock, lambda package: _download(package.wheels, target.platform)
    )
    return Subject(target, catalogue.on(target.platform), policy, lock, present)


def locked_packages(
    target: Target, lock: Lock, size_of: Callable[[Package], int | None]
) -> tuple[Present, ...]:
    """The distributions of a lock by name, with the bytes to download."""
    return tuple(
        Present(item.name, item.version, target.lock_file, size_of(item), item.index)
        for item in sorted(lock.packages, key=lambda package: package.name)
    )


def built(
    target: Target,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    lock: Lock | None,
    catalogue: Catalogue,
    policy: Policy,
    resolution: Resolution | None = None,
    leftovers: Sequence[Leftover] = (),
) -> ImageSubject:
    """The target as its image is."""
    indexes = {package.name: package.index for package in lock.packages} if lock else {}
    present = tuple(
        Present(item.name, item.version, item.path, item.size, indexes.get(item.name))
        for item in sorted(inventory.distributions, key=lambda item: (item.name, item.path))
    )
    return ImageSubject(
        target,
        catalogue.on(target.platform),
        policy,
        lock,
        present,
        inventory,
        tuple(evidence),
        resolution or resolve(inventory),
        leftovers=tuple(leftovers),
    )


def _download(wheels: Iterable[Wheel], platform: str) -> int | None:
    """Bytes of the wheel for `platform`: the largest of those that fit, which differ little."""
    machine = _MACHINES.get(platform, "")
    sizes = [
        wheel.size
        for wheel in wheels
        if wheel.size is not None
        and (machine in wheel.filename or wheel.filename.endswith("-any.whl"))
        and not ("macosx" in wheel.filename or "win_" in wheel.filename)
    ]
    return max(sizes, default=None)


# Shortest ways from requirement lines to distributions


class LockWays:
    """The shortest ways of all packages of a lock, found once and in linear time."""

    def __init__(self, packages: Mapping[str, Package]) -> None:
        self._packages = packages
        children: dict[str, list[str]] = {}
        for name, package in packages.items():
            for asker in package.via:
                children.setdefault(asker, []).append(name)
        lines = {name: line for name, package in packages.items() if (line := self._line(package))}
        steps = _steps(lines, children, {})
        # Locks of other tools may not say who asked: ways begin at what nothing is seen to ask for.
        silent = [name for name, package in packages.items() if not package.via]
        steps = _steps((name for name in silent if name not in steps), children, steps)
        self._steps = steps

    def way(self, name: str) -> tuple[str | None, list[Package]]:
        """The line that the way of a package begins with, and the packages from there to it.

        Where no line leads to it, the place of the entry at the top.
        """
        if name not in self._packages:
            return None, []
        packages = [self._packages[name]]
        while True:
            top = packages[-1]
            if line := self._line(top):
                break
            step = self._steps.get(top.name, 0)
            above = (asker for asker in top.via if self._steps.get(asker, step) == step - 1)
            asker = next(above, None)
            if asker is None:
                line = top.place
                break
            packages.append(self._packages[asker])
        return line or None, packages[::-1]

    def _line(self, package: Package) -> str | None:
        return next((asker for asker in package.via if asker not in self._packages), None)


def _steps(
    starts: Iterable[str], children: Mapping[str, list[str]], settled: Mapping[str, int]
) -> dict[str, int]:
    """Name → steps from the nearest start; names that are `settled` keep theirs."""
    steps = dict(settled)
    queue = list(starts)
    steps |= dict.fromkeys(queue, 0)
    for name in queue:  # grows while it is walked: breadth first
        for child in children.get(name, ()):
            if child not in steps:
                steps[child] = steps[name] + 1
                queue.append(child)
    return steps
