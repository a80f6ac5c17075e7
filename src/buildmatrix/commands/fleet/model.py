"""What is in a fleet, and what a worker is told. All of it travels between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar

from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.spec.model import NodeClass

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


#: Seconds; a layer of 20 GB comes in that time where 6 MB come in a second.
TIME_LIMIT = 3600.0
#: Bytes of layers that are read beside other work.
SMALL_LAYER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One image that is in the fleet, and what is known of it before it is read."""

    #: `HOST/NAME[:TAG][@DIGEST]`, as `registry.reference.Reference` writes it.
    reference: str
    #: Where the fleet names it: `registry:HOST/PREFIX/*`, `images.txt:7`, `pod NAMESPACE/NAME`.
    places: tuple[str, ...]
    #: Names of the node classes that it runs on, and how many containers run it.
    node_classes: tuple[str, ...] = ()
    containers: int = 0
    #: Whom the place names as its owner; empty where it names nobody.
    owner: str = ""
    #: What its tag means, where the registry was asked in this run; it is not asked again.
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPattern:
    """References that are for a backend by their name: `*/rocm-*=rocm`."""

    pattern: str
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What every worker is told, once. It has no secret in it, and nothing of one machine.

    Credentials stay where they are: a worker reads the Docker configuration, the environment and
    the helpers of its own machine, as every command does.
    """

    #: URL of the store that all workers share, as fsspec spells it; empty for the cache of the
    #: machine that each of them runs on.
    store: str
    #: `linux/amd64`: which image is meant where there is one for each platform.
    platform: str
    today: date
    #: Backend for what neither a node class nor an image says; empty for none.
    backend: str = ""
    patterns: tuple[BackendPattern, ...] = ()
    #: Those of the specification and of the cluster, which images are held against.
    node_classes: tuple[NodeClass, ...] = ()
    #: Names of the node classes that every image is held against (`--would-run-on`).
    would_run_on: tuple[str, ...] = ()
    #: Labels of an image, of which the first that is there names its owner.
    owner_labels: tuple[str, ...] = ()
    #: The user's data files for the catalogue: name → text.
    data_files: Mapping[str, str] = field(default_factory=dict)
    #: Seconds for each layer that is read, and for each image.
    time_limit: float = TIME_LIMIT


#: What a worker does: one of the functions of `commands.fleet.work`.
Work = Callable[[WorkerSettings, Argument], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTask:
    """A layer that has to be read before an image can be judged."""

    #: Where it can be read: an image that has it, by its digest.
    reference: str
    #: `sha256:...` of the blob, and its bytes.
    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDone:
    """How reading one layer ended."""

    digest: str
    #: Bytes that came over the network.
    bytes_read: int
    seconds: float
    #: Why its facts are missing, in one sentence; None where the store has them now.
    error: str | None = None
    #: Whether the error may pass: the same task may do better later.
    again: bool = False
    #: Whether it is about credentials: a worker that has others may do better.
    denied: bool = False
    #: Seconds for which the registry asks to be left alone; 0 for no such wish.
    wait: float = 0.0
    #: What this worker has to say beside it, once: its store is full.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTask:
    """An image by its digest, with what is still missing for its verdict."""

    subject: Subject
    #: `HOST/NAME[:TAG]@DIGEST`; of the image for the platform that is meant.
    reference: str
    #: Layers that the store does not have; none where the image can be judged now.
    unread: tuple[LayerTask, ...] = ()
    #: Layers that could not be read in this run, with the reason: the image is undecided.
    failed: tuple[LayerDone, ...] = ()
    #: Digest of what the reference means, which may be an index; empty where nobody knows it.
    pinned: str = ""
    #: What is known without reading anything: results of an earlier run, or what is wrong with it,
    #: without what only the subject knows. With results, nothing is to be done.
    results: tuple[FleetResult, ...] = ()
    #: Whether the results came out of the store, and whether it has them now.
    is_stored: bool = False
    is_kept: bool = False
    #: Digests of the layers that were read already, and the bytes that came over the network.
    read: tuple[str, ...] = ()
    bytes_read: int = 0
    #: Why there is nothing to judge, in one sentence: it is no image (a signature, a chart), or
    #: none for the platform. Such a subject has no result, and nothing is to be done.
    left_out: str = ""
    #: Whether what is wrong may pass: the same task may do better later.
    again: bool = False
    #: See `LayerDone.denied` and `LayerDone.wait`.
    denied: bool = False
    wait: float = 0.0
    #: See `LayerDone.notes`.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDone:
    """How judging one image ended."""

    #: At least one: where it could not be judged, one that is undecided and says why. Without what
    #: only the subject knows.
    results: tuple[FleetResult, ...]
    #: Bytes that came over the network: of layers that the store had lost, of files asked for.
    bytes_read: int
    seconds: float
    #: Whether the store has the results now.
    is_kept: bool = False
    #: See `LayerDone`.
    again: bool = False
    denied: bool = False
    wait: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Who does the work."""

    #: Processes of this machine; 0 for one per core.
    workers: int = 0
    #: Address of a Dask scheduler (`tcp://HOST:PORT`, `tls://HOST:PORT`), in their place.
    scheduler: str = ""
