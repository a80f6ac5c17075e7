"""What is asked of uv for one target, and which targets ask the same.

A matrix has many targets that differ in nothing that a resolution depends on: a variant that only
copies other sources, another command, other tags. Those share one resolution (`shared`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import SpecError
from buildmatrix.locks.inputs import input_values
from buildmatrix.locks.pylock_reader import read_lock
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.target_requirements import read_target_requirements
from buildmatrix.spec.model import Target


@dataclass(frozen=True, slots=True)
class Question:
    """One target that is to be resolved, with everything that its lock is made from."""

    target: Target
    requirements: RequirementSet
    #: What the lock records (`locks.inputs`).
    inputs: Mapping[str, str]
    #: Versions that the resolution keeps where they still fit.
    preferred: Mapping[str, str]

    @property
    def key(self) -> Hashable:
        """Equal for two questions of one run whose answers are equal.

        Recorded inputs leave out what is secret and what is in no order; here logins of indexes
        count, and orders, which decide between two families that claim one distribution.
        """
        target = self.target
        return (
            tuple(self.inputs.items()),
            target.requirements,
            target.extras,
            tuple(target.index.items()),
            tuple(target.replace.items()),
            tuple(sorted(self.preferred.items())),
        )


def question(root: Path, target: Target, upgrade: bool | Sequence[str]) -> Question:
    """What is to be asked for `target`, with paths from `root`; `upgrade` as for `lock_targets`.

    Raises `SpecError` for inputs that cannot be read, and `UndecidedError` for a platform that
    nothing can be resolved for.
    """
    requirements = read_target_requirements(root, target)
    inputs = input_values(root, target, requirements)
    return Question(target, requirements, inputs, _kept_versions(root / target.lock, upgrade))


def shared(questions: Iterable[Question]) -> tuple[tuple[Question, ...], ...]:
    """The questions in groups with equal answers, in the order of the first of each."""
    groups: dict[Hashable, list[Question]] = {}
    for item in questions:
        groups.setdefault(item.key, []).append(item)
    return tuple(map(tuple, groups.values()))


def _kept_versions(path: Path, upgrade: bool | Sequence[str]) -> Mapping[str, str]:
    """Versions of the present lock that a new resolution should keep where it can."""
    if upgrade is True:
        return {}
    try:
        lock = read_lock(path)
    except SpecError:
        return {}  # No lock yet, or a broken one: it is about to be replaced.
    given_up = {canonicalize_name(name) for name in upgrade or ()}
    return {
        package.name: package.version
        for package in lock.packages
        if package.version and package.name not in given_up
    }
