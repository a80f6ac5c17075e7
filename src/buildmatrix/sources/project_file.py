"""`pyproject:FILE`: what a project asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.target_requirements import add_project
from buildmatrix.sources.declared_file import DeclaredFile


@dataclass(frozen=True)
class ProjectFile(DeclaredFile):
    """A pyproject.toml."""

    prefix = "pyproject"
    written_as = "project"

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        return name == "pyproject.toml"

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        add_project(wanted, ask)
