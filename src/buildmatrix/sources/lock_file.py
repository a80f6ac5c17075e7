"""`lock:FILE`: a lock, whatever tool wrote it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.locks.committed import export_command, is_lock
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.selection import LockSelection
from buildmatrix.sources.declared_file import DeclaredFile, lock_again

#: What `buildmatrix lock` calls the lock of a target, where the specification says nothing else.
_NAME = re.compile(r"pylock\.(.+)\.toml")


@dataclass(frozen=True)
class LockSource(DeclaredFile):
    """A lock."""

    prefix = "lock"

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        return is_lock(name) or bool(export_command(name))

    def is_locked(self, ask: LockSelection) -> bool:
        """See `Declared.is_locked`."""
        return True

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        raise AssertionError(f"{self} asks for nothing more than it holds")

    def made_for(self) -> str:
        """See `Declared.made_for`."""
        name = _NAME.fullmatch(Path(self.name).name)
        return name[1] if name else ""

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`."""
        return lock_again(label)
