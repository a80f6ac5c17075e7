"""`pypi:NAME==VERSION`: a distribution, with what it requires."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packaging.requirements import InvalidRequirement

from buildmatrix.errors import UsageError
from buildmatrix.locks.requirement_lines import add_line
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.selection import LockSelection
from buildmatrix.parsing import parse_requirement
from buildmatrix.sources.model import Argument, Declared

#: An image may be named by its digest: that is not a valid requirement with an address.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*(===?|~=|!=|[<>]=?|@(?!sha256:)).*"
)


@dataclass(frozen=True)
class PackageRequirement(Declared):
    """A requirement as pip takes it, without an address."""

    prefix = "pypi"
    written_as = "itself"

    @property
    def is_file(self) -> bool:
        """See `Declared.is_file`."""
        return False

    @classmethod
    def named(cls, name: str, argument: Argument) -> Self:
        """See `Source.named`."""
        try:
            requirement = parse_requirement(name)
        except InvalidRequirement as error:
            cause = str(error).splitlines()[0]
            raise UsageError(
                f"pypi:{name} is not a valid requirement: {cause}; write pypi:NAME==VERSION"
            ) from error
        if requirement.url is not None:
            raise UsageError(
                f"pypi:{name} names an address; write pypi:NAME==VERSION, or wheel:URL"
            )
        return cls(name.strip(), argument.text)

    @classmethod
    def recognized(cls, argument: Argument) -> Self | None:
        """See `Source.recognized`."""
        text = argument.text
        if "://" in text or not _REQUIREMENT.fullmatch(text) or argument.path.is_dir():
            return None
        return cls.named(text, argument)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        add_line(wanted, self.name, str(self), 0, root)

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`: the SOURCE itself is what a fix changes."""
        return None
