"""Tasks and answers of workers for the files of repositories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.reports.fleet.model import BackendBy, FleetResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Location of a file; equal files of many repositories are one task."""

    #: As named in the fleet.
    repository: str
    #: Relative to the root of the repository.
    path: str
    #: Full commit id of the default branch, and its time in RFC 3339.
    commit: str
    created: str
    #: Source of the repository in the fleet: a folder, `repositories.txt:7`.
    place: str
    owner: str = ""
    backend_by: BackendBy = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTask:
    """A file that declares distributions, for one backend, with all files that it reads.

    It holds bytes and no local paths: a worker needs neither git nor the repository.
    """

    holders: tuple[Holder, ...]
    #: Key of the file in `files`.
    path: str
    #: Path to contents, compressed by zlib.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Empty for a specification, which has one for each of its targets.
    backend: str = ""
    #: Why it cannot be judged, in one sentence; then there is no work.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDone:
    """Result of judging one file."""

    #: At least one per holder: an undecided one if it could not be judged.
    results: tuple[FleetResult, ...]
    #: Bytes of wheels downloaded.
    bytes_read: int = 0
    seconds: float = 0.0
    #: See `model.LayerDone`.
    again: bool = False
    #: Host and port of an index that did not respond and may later; empty if all did.
    away: str = ""
    #: True if the results come from the store.
    is_stored: bool = False
    notes: tuple[str, ...] = ()
