"""What a worker is told of a file of a repository, and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.reports.fleet.model import BackendBy, FleetResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Where a repository has a file; equal files of many repositories are one task."""

    #: As the fleet names it.
    repository: str
    #: From the top of the repository.
    path: str
    #: Of the default branch, in full, and when it was made: RFC 3339.
    commit: str
    created: str
    #: Where the fleet names the repository: a folder, `repositories.txt:7`.
    place: str
    owner: str = ""
    backend_by: BackendBy = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """A file that says what is installed, for one backend, with all that it reads.

    It holds bytes and no path of a machine: a worker needs neither git nor the repository.
    """

    holders: tuple[Holder, ...]
    #: The file in `files`.
    path: str
    #: Path → contents, compressed by zlib.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Empty for a specification, which says it for each of its targets.
    backend: str = ""
    #: Why it cannot be judged, in one sentence: then nothing is to be done.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDone:
    """How judging one file ended."""

    #: At least one for each holder: where it could not be judged, one that is undecided.
    results: tuple[FleetResult, ...]
    #: Bytes of wheels that came over the network.
    bytes_read: int = 0
    seconds: float = 0.0
    #: See `model.LayerDone`.
    again: bool = False
    #: Who gave no answer and may later: host and port of an index; empty where all did.
    away: str = ""
    #: Whether the results came out of the store.
    is_stored: bool = False
    notes: tuple[str, ...] = ()
