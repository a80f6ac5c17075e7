"""A lock as the rest of buildmatrix sees it (PEP 751, lock version 1.0)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from buildmatrix.facts.inventory.model import Unread

#: Where the public index has its files, each under a digest of its bytes.
PUBLIC_FILES = "https://files.pythonhosted.org/"
#: Start of an address of a repository, or of a file that is not on this machine.
_REMOTE = re.compile(r"(?:git|hg|svn|bzr)\+|(?!file:)[A-Za-z][A-Za-z0-9.-]*:")


@dataclass(frozen=True, slots=True)
class LockedFile:
    """One file of a locked package."""

    filename: str
    #: Also a path or a `file:` URL; empty where the lock has none and no index was asked.
    url: str
    #: `sha256` in hex; empty where a lock of another tool has none.
    sha256: str
    #: Bytes, where the index says so.
    size: int | None = None

    @property
    def is_public(self) -> bool:
        """Whether it is the public index's file of its name: that never changes one."""
        return self.url.startswith(PUBLIC_FILES)


#: A wheel or a source distribution.
File = TypeVar("File", bound=LockedFile)


@dataclass(frozen=True, slots=True)
class Wheel(LockedFile):
    """A wheel of a locked package."""


@dataclass(frozen=True, slots=True)
class Sdist(LockedFile):
    """The source distribution of a locked package."""


@dataclass(frozen=True, slots=True)
class Package:
    """One locked distribution."""

    #: Normalized name (PEP 503).
    name: str
    version: str
    #: Index that it came from, without credentials; None for direct URLs and local files.
    index: str | None
    wheels: tuple[Wheel, ...]
    #: True where only a source distribution is locked.
    source_only: bool
    #: What requires it: names of distributions, and `file:line` for requirement lines. Sorted.
    via: tuple[str, ...]
    #: `file:line` of its entry, where the format has lines.
    place: str = ""
    #: What it is built from, where that is not a file of an index: a repository, a folder, a URL.
    source: str = ""
    #: Why its files are not known, in words: the index has no such version, or did not answer.
    unknown: str = ""
    sdist: Sdist | None = None
    #: `Requires-Dist` lines, where its source distribution was read and says them.
    requires: tuple[str, ...] | None = None

    @property
    def is_local(self) -> bool:
        """True for what is built from a folder of the user's own; no service may hear its name."""
        return bool(self.source) and not _REMOTE.match(self.source)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Parts of a source that were not selected and are not defaults of its project."""

    #: Normalized names, sorted.
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: All that can be selected together: what was selected, and what does not conflict with it.
    more_extras: tuple[str, ...] = ()
    more_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock of one target."""

    path: Path
    packages: tuple[Package, ...]
    #: Digest of everything that the resolution depended on.
    inputs: str
    #: sha256 of the file's bytes.
    digest: str
    left_out: LeftOut = LeftOut()
    #: Whether an installer adds what the packages require and the file lacks: pip does so for
    #: requirements without hashes, however they came about.
    is_completed: bool = False
    #: What conda installs in addition, as packages and as unread files.
    conda: tuple[Package, ...] = ()
    unread: tuple[Unread, ...] = ()
    #: Normalized names that the lock's project provides or decides on itself, whatever wheels
    #: require: its own, overrides, exclusions.
    decided: frozenset[str] = frozenset()
    #: Indexes that gave no answer about some of the files, and may later: hosts and ports.
    away: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why a lock does not fit its inputs."""

    reason: str
    #: False where only the tool that made the lock can decide.
    is_proven: bool = True

    def __str__(self) -> str:
        return self.reason
