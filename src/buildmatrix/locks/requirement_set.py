"""What requirement inputs ask for, as locking, auditing and fixing use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from buildmatrix.errors import Problem
from buildmatrix.inventory.model import Unread
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.markers import holds
from buildmatrix.locks.model import LeftOut, Package
from buildmatrix.locks.projects import Project


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A line that names something to build: a folder, a repository, an archive of sources."""

    #: Normalized name; where the line does not say it, the last part of its address.
    name: str
    #: What it is built from, without credentials.
    source: str
    #: `file:line`.
    place: str
    #: Environments that the line applies to (PEP 508); empty for all.
    marker: str = ""


@dataclass(slots=True)
class RequirementSet:
    """Everything that sources ask for."""

    #: Label → bytes of every file that was read.
    files: dict[str, bytes] = field(default_factory=dict)
    #: What a resolver can be asked for.
    lines: list[RequirementLine] = field(default_factory=list)
    constraints: list[RequirementLine] = field(default_factory=list)
    unbuilt: list[Unbuilt] = field(default_factory=list)
    #: Index options as uv reads them, in the order of reading.
    options: list[str] = field(default_factory=list)
    #: Distributions that are to be built from source; `:all:` for every one.
    no_binary: set[str] = field(default_factory=set)
    prerelease: bool = False
    #: Distribution → name of the index that `settings` ties it to.
    bound: dict[str, str] = field(default_factory=dict)
    #: Settings of uv that decide what is resolved (`locks.uvsettings`).
    settings: Mapping[str, object] = field(default_factory=dict)
    #: A wheel that is not there is something unknown, and no mistake.
    tolerant: bool = False
    #: Whether this is for a lock that an image is built from, and uv reads the same files itself.
    for_image: bool = False
    problems: list[Problem] = field(default_factory=list)
    #: Parts of a project that are not asked for.
    left_out: LeftOut = field(default_factory=LeftOut)
    #: Files that were begun, each with whether as constraints: the two readings differ.
    begun: set[tuple[str, bool]] = field(default_factory=set)
    #: What conda installs, as packages and as unread files.
    conda: list[Package] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    #: Projects in local folders that were asked for, by name, with their folders.
    local: dict[str, tuple[Project, Path]] = field(default_factory=dict)


def applies(line: RequirementLine | Unbuilt, environment: Mapping[str, str]) -> bool:
    """Whether a line applies to an environment (PEP 508)."""
    marker = line.marker if isinstance(line, Unbuilt) else line.requirement.marker
    return not marker or holds(str(marker), environment)
