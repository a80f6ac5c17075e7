"""`requirements:FILE`: requirement lines, also those of an environment of conda."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from buildmatrix.errors import SpecError, UsageError
from buildmatrix.locks.environment import is_environment, read_environment
from buildmatrix.locks.pinned import is_pinned
from buildmatrix.locks.requirement_files import add_file
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.selection import LockSelection
from buildmatrix.sources.declared_file import DeclaredFile, is_lock_of_conda


@dataclass(frozen=True)
class RequirementsFile(DeclaredFile):
    """A requirements file, its input, or an environment of conda with a `pip:` section."""

    prefix = "requirements"

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        return name.endswith((".txt", ".in")) or is_environment(name) or is_lock_of_conda(name)

    def check_parts(self) -> None:
        """See `DeclaredFile.check_parts`."""
        if self.extras or self.groups or self.without:
            raise UsageError(
                f"{self.text}: extras and groups belong to a pyproject.toml or to a lock"
            )

    def is_locked(self, ask: LockSelection) -> bool:
        """See `Declared.is_locked`: other tools write locks as requirements."""
        return is_pinned(ask.path, ask.label)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        add_file(wanted, ask.path, ask.label)

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`."""
        if (why := super().unwritable(path, label)) is not None:
            return why
        try:
            if is_pinned(path, label):
                return f"{label} is the output of a tool: change its input, and run the tool again"
        except SpecError as error:
            return str(error)
        return None

    def python_in(self, text: str) -> str:
        """See `DeclaredFile.python_in`."""
        if is_environment(self.name):
            return read_environment(text, self.name).python
        return super().python_in(text)
