"""The lock of one target, in the terms of PEP 751 (lock version 1.0)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from buildmatrix.facts.inventory.model import Unread

#: Address of the public index's files, each under a digest of its bytes.
PUBLIC_FILES = "https://files.pythonhosted.org/"
#: Start of the address of a repository, or of a file on another machine.
_REMOTE = re.compile(r"(?:git|hg|svn|bzr)\+|(?!file:)[A-Za-z][A-Za-z0-9.-]*:")


class LockedFile(Struct, frozen=True):
    """One file of a locked package."""

    filename: str
    #: Also a path or a `file:` URL; empty if the lock has none and no index was asked.
    url: str
    #: `sha256` in hex; empty where a lock of another tool has none.
    sha256: str
    #: Bytes, if the index states them.
    size: int | None = None

    @property
    def is_public(self) -> bool:
        """True for the public index's file of its name, which never changes."""
        return self.url.startswith(PUBLIC_FILES)


#: A wheel or a source distribution.
File = TypeVar("File", bound=LockedFile)


class Wheel(LockedFile, frozen=True):
    """A wheel of a locked package."""


class Sdist(LockedFile, frozen=True):
    """The source distribution of a locked package."""


class Package(Struct, frozen=True):
    """One locked distribution."""

    #: Normalized name (PEP 503).
    name: str
    version: str
    #: Index without credentials; None for direct URLs and local files.
    index: str | None
    wheels: tuple[Wheel, ...]
    #: True if only a source distribution is locked.
    source_only: bool
    #: Askers: names of distributions, and `file:line` for requirement lines. Sorted.
    via: tuple[str, ...]
    #: `file:line` of its entry, where the format has lines.
    place: str = ""
    #: Source of its build, unless it is a file of an index: a repository, a folder, a URL.
    source: str = ""
    #: Reason for unknown files, in words: the index has no such version, or did not answer.
    unknown: str = ""
    sdist: Sdist | None = None
    #: `Requires-Dist` lines, if its source distribution was read and has them.
    requires: tuple[str, ...] | None = None

    @property
    def is_local(self) -> bool:
        """True if it is built from a folder of the user; no service may receive its name."""
        return bool(self.source) and not _REMOTE.match(self.source)


class CondaPackage(Package, frozen=True, kw_only=True):
    """One package of a conda channel, which is `index`; `version` has its build behind a `+`.

    What others require and the lock lacks has no file: virtual packages, such as `__cuda`.
    """

    file: LockedFile | None = None
    #: Normalized names of the Python distributions that it may install.
    provides: tuple[str, ...] = ()


class LeftOut(Struct, frozen=True):
    """Parts of a source that were neither selected nor defaults of its project."""

    #: Normalized names, sorted.
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: All compatible selections: the current one, and parts that do not conflict with it.
    more_extras: tuple[str, ...] = ()
    more_groups: tuple[str, ...] = ()
    #: Other environments of pixi, each of which is installed alone.
    environments: tuple[str, ...] = ()


class Lock(Struct, frozen=True):
    """The lock of one target."""

    path: Path
    packages: tuple[Package, ...]
    #: Digest of all inputs of the resolution.
    inputs: str
    #: sha256 of the file's bytes.
    digest: str
    left_out: LeftOut = LeftOut()
    #: True if an installer adds requirements that the file lacks, as pip does without hashes.
    is_completed: bool = False
    #: Packages of conda, locked or only requested, and unread files.
    conda: tuple[Package, ...] = ()
    unread: tuple[Unread, ...] = ()
    #: Normalized names that the lock's project provides or decides itself, whatever wheels require:
    #: its own, overrides, exclusions.
    decided: frozenset[str] = frozenset()
    #: Indexes that did not answer for some of the files, and may later: hosts and ports.
    away: tuple[str, ...] = ()


class Staleness(Struct, frozen=True):
    """Reason why a lock does not fit its inputs."""

    reason: str
    #: False if only the lock's tool can decide.
    is_proven: bool = True

    def __str__(self) -> str:
        return self.reason


class SourceFacts(Struct, frozen=True):
    """Facts of a source distribution's files; no vendor is known here."""

    #: `Requires-Dist` lines of all wheels built of it; None if a build decides.
    requires: tuple[str, ...] | None
    #: Binaries, device code and archives in it.
    built: tuple[str, ...]
    #: Suffixes of files, without the dot, each with the first path.
    suffixes: tuple[tuple[str, str], ...]
    #: Paths and texts of build files.
    build_files: tuple[tuple[str, str], ...]
    #: Names of libraries as constants in its code, each with the first path.
    libraries: tuple[tuple[str, str], ...]
    #: Bytes of the archive.
    size: int
