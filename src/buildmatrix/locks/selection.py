"""Which part of a committed lock is read: one target, with its extras and groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import InvalidSpecifier
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.markers import holds
from buildmatrix.locks.model import LeftOut
from buildmatrix.locks.platform import installed_environment
from buildmatrix.parsing import parse_specifiers, parse_version
from buildmatrix.spec.model import Target

#: Grammar of names (https://packaging.python.org/en/latest/specifications/name-normalization/).
_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,200}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class LockSelection:
    """What is read out of a lock."""

    path: Path
    #: How the file is called in messages and in `Package.place`.
    label: str
    target: Target
    #: Normalized names.
    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    #: Groups that are a default of the project, and are not selected here.
    without: frozenset[str] = frozenset()
    #: False for groups alone, without what the project itself requires.
    has_main: bool = True
    #: False where the default groups of the project are not selected.
    has_defaults: bool = True

    @property
    def environment(self) -> Mapping[str, str]:
        """The markers of the target, as an installer of the lock evaluates them."""
        return installed_environment(self.target)

    def fits(self, marker: str | None, extras: Collection[str] = ()) -> bool:
        """Whether a marker holds; raises `BrokenMarker`."""
        return holds(marker, self.environment, extras, self.groups)

    def beside(self, name: str) -> tuple[Path, str]:
        """A file next to the lock, and what it is called."""
        folder, slash, _ = self.label.rpartition("/")
        return self.path.parent / name, f"{folder}{slash}{name}"

    def check(self, extras: Collection[str], groups: Collection[str]) -> None:
        """Raise `SpecError` when an extra or a group is asked for that the lock does not have."""
        problems = [
            Problem(
                f"there is no {kind} `{name}`",
                self.label,
                hint=f"{kind}s here: {', '.join(sorted(present)) or 'none'}",
            )
            for kind, requested, present in (
                ("extra", self.extras, extras),
                ("group", self.groups | self.without, groups),
            )
            for name in sorted(requested - {canonicalize_name(part) for part in present})
        ]
        if problems:
            raise SpecError(problems)

    def with_defaults(self, groups: Iterable[str]) -> LockSelection:
        """The same with the groups that the project installs by default."""
        if not self.has_defaults:
            return self
        return replace(self, groups=self.groups | (frozenset(groups) - self.without))

    def left_out(
        self,
        extras: Iterable[str],
        groups: Iterable[str],
        conflicts: Iterable[Collection[str]] = (),
    ) -> LeftOut:
        """The extras and groups that are not asked for.

        `conflicts` are sets of extras, and of groups with a `:` in front, that exclude one another.
        """
        together = {*self.extras, *(f":{name}" for name in self.groups)}
        parts: list[str] = sorted(set(map(canonicalize_name, extras)) - self.extras)
        parts += [f":{name}" for name in sorted(set(map(canonicalize_name, groups)) - self.groups)]
        for part in parts:
            if all(part not in conflict or together.isdisjoint(conflict) for conflict in conflicts):
                together.add(part)
        return LeftOut(
            extras=tuple(part for part in parts if not part.startswith(":")),
            groups=tuple(part[1:] for part in parts if part.startswith(":")),
            more_extras=tuple(sorted(part for part in together if not part.startswith(":"))),
            more_groups=tuple(sorted(part[1:] for part in together if part.startswith(":"))),
        )

    def check_python(self, requires_python: str, subject: str = "the lock") -> None:
        """Raise `SpecError` where a lock, or a part of it, is not for the target's Python."""
        target = self.target
        try:
            # Only the minor version counts: tools that ran on 3.12.3 write `>=3.12.3`.
            pythons = parse_specifiers(requires_python)
            reached = any(pythons.contains(f"{target.python}.{patch}") for patch in range(100))
        except InvalidSpecifier as error:
            problem = (
                f"{subject} is for Python {requires_python!r}, which is not a range of versions"
            )
            raise SpecError([Problem(problem, self.label)]) from error
        if not reached:
            problem = (
                f"{subject} is for Python {requires_python}, and {target.id} has {target.python}"
            )
            raise SpecError([Problem(problem, self.label)])

    def check_version(self, version: str, name: str, line: int | None) -> str:
        """The version of an entry in its normal form (PEP 440).

        Raises `SpecError` for an invalid version, and for an invalid name (PEP 508).
        """
        if not _NAME.fullmatch(name):
            problem = f"{name[:80]!r} is not a valid name of a distribution"
            raise SpecError([Problem(problem, self.label, line)])
        try:
            return str(parse_version(version)) if version else ""
        except InvalidVersion as error:
            problem = f"package `{name}`: `version` is {version!r}, and must be a version (PEP 440)"
            raise SpecError([Problem(problem, self.label, line)]) from error
