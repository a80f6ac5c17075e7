"""Subjects of a fleet, and tasks and answers of workers. All are sent between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from msgspec import Struct, field

from buildmatrix.matrix.model import NodeClass
from buildmatrix.reports.fleet.model import BackendBy, FleetResult

# Images


Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


#: Seconds; enough for a layer of 20 GB at 6 MB/s.
TIME_LIMIT = 3600.0
#: Size of layers that are read along with other work.
SMALL_LAYER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One image of the fleet, before it is read."""

    #: `HOST/NAME[:TAG][@DIGEST]`, as formatted by `registry.reference.Reference`.
    reference: str
    #: Its sources in the fleet: `registry:HOST/PREFIX/*`, `images.txt:7`, `pod NAMESPACE/NAME`.
    places: tuple[str, ...]
    #: Names of its node classes, and the number of containers running it.
    node_classes: tuple[str, ...] = ()
    containers: int = 0
    #: Owner according to the source; empty if unknown.
    owner: str = ""
    #: Digest of its tag, if the registry was asked in this run; it is not asked again.
    digest: str = ""


class BackendPattern(Struct, frozen=True, kw_only=True):
    """References with a backend in their name: `*/rocm-*=rocm`."""

    pattern: str
    backend: str


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Settings for every worker, sent once. They contain no secrets, and nothing local.

    Credentials stay where they are: a worker reads the Docker configuration, the environment and
    the helpers of its own machine, like every command.
    """

    #: URL of the store shared by all workers, in fsspec syntax; empty for the local cache of each
    #: worker's machine.
    store: str
    #: `linux/amd64`: the platform of the image in an index.
    platform: str
    today: date
    #: Backend for images with no other source of it; empty for none.
    backend: str = ""
    patterns: tuple[BackendPattern, ...] = ()
    #: Those of the specification and of the cluster, which images are checked against.
    node_classes: tuple[NodeClass, ...] = ()
    #: Names of the node classes that every image is checked against (`--would-run-on`).
    would_run_on: tuple[str, ...] = ()
    #: Labels of an image that name its owner; the first one present wins.
    owner_labels: tuple[str, ...] = ()
    #: The user's data files for the catalogue: name to text.
    data_files: Mapping[str, str] = field(default_factory=dict)
    #: Time limit in seconds for reading each layer, and for each image.
    time_limit: float = TIME_LIMIT


#: Function of a worker, from `fleet.work`.
Work = Callable[[WorkerSettings, Argument], Answer]


class WorkerAnswer(Struct, frozen=True, kw_only=True):
    """Part of every answer: whether a retry may help, and messages."""

    #: True if a problem may be temporary, so that a retry may help.
    again: bool = False
    #: True if it concerns credentials: a worker with others may succeed.
    denied: bool = False
    #: Seconds of the registry's rate limit; 0 for none.
    wait: float = 0.0
    #: Other messages of this worker, sent once: its store is full.
    notes: tuple[str, ...] = ()


class LayerTask(Struct, frozen=True, kw_only=True):
    """A layer that must be read before an image can be judged."""

    #: An image that contains it, by digest.
    reference: str
    #: `sha256:...` of the blob, and its size in bytes.
    digest: str
    size: int
    media_type: str


class LayerDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of reading one layer."""

    digest: str
    #: Bytes downloaded.
    bytes_read: int = 0
    seconds: float = 0.0
    #: Why its facts are missing, in one sentence; None if the store has them now.
    error: str | None = None


class ImageTask(WorkerAnswer, frozen=True, kw_only=True):
    """An image by its digest, with missing inputs of its verdict."""

    subject: Subject
    #: `HOST/NAME[:TAG]@DIGEST` of the image for the platform.
    reference: str
    #: Layers missing from the store; none if the image can be judged now.
    unread: tuple[LayerTask, ...] = ()
    #: Layers that failed in this run, with the reason: the image is undecided.
    failed: tuple[LayerDone, ...] = ()
    #: Digest of the reference, possibly of an index; empty if unknown.
    pinned: str = ""
    #: Results known without reading: those of an earlier run, or its problem, without data of the
    #: subject. With results, there is no work.
    results: tuple[FleetResult, ...] = ()
    #: True if the results come from the store; True if it has them now.
    is_stored: bool = False
    is_kept: bool = False
    #: Digests of the layers read already, and bytes downloaded.
    read: tuple[str, ...] = ()
    bytes_read: int = 0
    #: Why there is nothing to judge, in one sentence: it is not an image (a signature, a chart), or
    #: there is none for the platform. Such a subject has no result and no work.
    left_out: str = ""


class ImageDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of judging one image."""

    #: At least one: an undecided one with the reason if it could not be judged. Without data of the
    #: subject.
    results: tuple[FleetResult, ...]
    #: Bytes downloaded: of layers that the store lost, of requested files.
    bytes_read: int
    seconds: float
    #: True if the store has the results now.
    is_kept: bool = False


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """Choice of workers."""

    #: Local processes; 0 for one per core.
    workers: int = 0
    #: Address of a Dask scheduler (`tcp://HOST:PORT`, `tls://HOST:PORT`) to use instead.
    scheduler: str = ""


# Repositories


class Holder(Struct, frozen=True, kw_only=True):
    """Location of a file; equal files of many repositories are one task."""

    #: Name in the fleet.
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


class AuditTask(Struct, frozen=True, kw_only=True):
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


class AuditDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of judging one file; `again` if an index did not respond."""

    #: At least one per holder: an undecided one if it could not be judged.
    results: tuple[FleetResult, ...]
    #: Bytes of wheels downloaded.
    bytes_read: int = 0
    seconds: float = 0.0
    #: True if it may do better at the end of the run: a disk was full, or a worker died.
    again_later: bool = False
    #: Host and port of an index that did not respond and may later; empty if all did.
    away: str = ""
    #: True if the results come from the store.
    is_stored: bool = False
