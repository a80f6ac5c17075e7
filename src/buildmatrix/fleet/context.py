"""Shared state of a worker for all tasks of a run, and its caches of results."""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.text import listing
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.load import Catalogue, load_texts
from buildmatrix.fleet.model import Subject, WorkerSettings
from buildmatrix.fleet.stacks import Stacks
from buildmatrix.images.documents import MAX_DOCUMENT, Descriptor
from buildmatrix.images.store.cache import DAY, Cache, default_folder, source_digest
from buildmatrix.images.store.shared import SharedEntries, open_storage
from buildmatrix.net.addresses import Patience, RequestError
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_manifests import ManifestBytes
from buildmatrix.net.registry_mirrors import Mirrors, Reference
from buildmatrix.reports.fleet import FleetResult

# Repository access.
#
# A worker reads credentials where it runs, so a worker with another setup may have less access.
# Refused work goes to another worker, and the report lists the workers without credentials.


#: Refused workers after which a repository counts as closed to all: more requests from hundreds of
#: workers would look like an attack.
_MOST_REFUSED = 3
_MOST_NAMED = 5


class RepositoryAccess(Struct):
    """Access of workers, by address, to one repository."""

    given: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def note(self, worker: str, *, denied: bool) -> None:
        """Record the registry's latest answer to a worker."""
        now, before = (self.refused, self.given) if denied else (self.given, self.refused)
        now[worker] = None
        before.pop(worker, None)

    def may_have_more(self, workers: int) -> bool:
        """True if another of this many workers may have the access that one lacks."""
        return bool(self.given) or len(self.refused) < min(workers, _MOST_REFUSED)


def describe_problems(accesses: Mapping[str, RepositoryAccess]) -> Iterator[str]:
    """Yield problems with the credentials of workers; `accesses` by repository name."""
    #: Registry, workers, and True if others had access, to their repositories.
    refused: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
    for name, access in sorted(accesses.items()):
        if access.refused:
            reference = Reference.parse(name)
            key = reference.host, tuple(sorted(access.refused)), bool(access.given)
            refused.setdefault(key, []).append(reference.repository)
    for (host, workers, others_got_it), names in refused.items():
        rest = (
            "others were given it and did the work: give all workers the same credentials"
            if others_got_it
            else "workers take credentials where they run, and not from here"
        )
        who = "the worker" if len(workers) == 1 else "the workers"
        repositories, addresses = listing(names, _MOST_NAMED), listing(workers, _MOST_NAMED)
        yield f"{host} refused {repositories} to {who} {addresses}; {rest}"


# Context of a process for all tasks of a run


Answer = TypeVar("Answer")
#: Size limit of all image documents in a machine's folder.
DOCUMENTS_LIMIT = 500_000_000
#: Runs that a process can serve at once; a further one replaces the first.
MOST_CONTEXTS = 4
#: Registry statuses for invalid or expired credentials.
_DENIED = (401, 403)
#: Seconds for which refused credentials are not read again.
_FRESH = 10.0
_MANIFEST = msgspec.msgpack.Decoder(prepare_type(ManifestBytes))


class WorkerContext:
    """State of one process for the tasks of one run; thread-safe."""

    def __init__(self, settings: WorkerSettings, patience: Patience | None = None) -> None:
        self.settings = settings
        self._patience = patience
        self._lock = threading.Lock()
        #: Messages for the user, of which the first ones were passed on.
        self._notes: dict[str, None] = {}
        self._told = 0
        self._registry: Registry | None = None
        self._since = 0.0
        self._catalogue: Catalogue | None = None
        #: The folder of this machine, backed by the store shared by all workers.
        shared = None
        if url := settings.store:
            try:
                shared = SharedEntries(open_storage(url), url, self.note)
            except BuildmatrixError as error:
                self.note(error.message)
        self.cache = Cache(default_folder(os.environ), self.note, shared)
        #: Manifests and configurations, cached in the store.
        self.documents = CachedDocuments(self)
        self.stacks = Stacks(self.cache)
        self.results = CachedResults(self.cache)

    def note(self, text: str) -> None:
        """Record a message for the user; each text once per process."""
        with self._lock:
            self._notes.setdefault(text)

    def notes(self) -> tuple[str, ...]:
        """Return the messages since the last call."""
        with self._lock:
            new = tuple(self._notes)[self._told :]
            self._told += len(new)
        return new

    @property
    def catalogue(self) -> Catalogue:
        """Vendor data, with the user's. Raises `SpecError`."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = load_texts(self.settings.data_files)
            return self._catalogue

    # Registries

    @property
    def registry(self) -> Registry:
        """Registry client."""
        with self._lock:
            if self._registry is None:
                self._registry = Registry(mirrors=Mirrors(os.environ), patience=self._patience)
                self._since = time.monotonic()
            return self._registry

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """Return the result of `work`, which queries a registry.

        Expired credentials are read again, and then `work` is repeated.
        """
        try:
            return work()
        except RequestError as error:
            if error.status not in _DENIED:
                raise
            with self._lock:
                if self._registry is None or time.monotonic() - self._since < _FRESH:
                    raise
                self._registry = None  # Closed with the last of its readers.
        return work()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._registry is not None:
                self._registry.close()
                self._registry = None


class CachedDocuments:
    """A `DocumentSource`: content of a digest never changes, and is requested once by anyone.

    Unless it `asks` a registry, uncached documents raise `UndecidedError`.
    """

    def __init__(self, context: WorkerContext, *, asks: bool = True) -> None:
        self._context = context
        self._asks = asks
        self._store = context.cache.store(
            "documents", "1", limit=DOCUMENTS_LIMIT, age=90 * DAY, by_use=True
        )

    def manifest(self, reference: Reference) -> ManifestBytes:
        """See `Registry.manifest`; `reference` has a digest."""
        key = f"manifest {reference.digest}"
        manifest = self._store.load(key, _MANIFEST)
        if manifest is None:
            manifest = self._ask(reference, lambda: self._context.registry.manifest(reference))
            self._store.save(key, manifest)
        return manifest

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """See `Registry.blob`; only for documents."""
        key = f"blob {descriptor.digest}"
        data = self._store.get(key)
        if data is None or len(data) != descriptor.size:

            def read() -> bytes:
                assert descriptor.size <= MAX_DOCUMENT
                with self._context.registry.blob(reference, descriptor) as chunks:
                    return b"".join(chunks)

            data = self._ask(reference, read)
            self._store.put(key, data)
        yield iter((data,))

    def _ask(self, reference: Reference, work: Callable[[], Answer]) -> Answer:
        if not self._asks:
            raise UndecidedError(f"{reference}: its documents were not requested yet")
        return self._context.ask(work)


_contexts: dict[bytes, WorkerContext] = {}
_lock = threading.Lock()


def find_context(settings: WorkerSettings) -> WorkerContext:
    """Return this process's context for these settings, made on first use."""
    key = b"%d %s" % (os.getpid(), msgspec.msgpack.encode(settings))
    with _lock:
        context = _contexts.get(key)
        if context is None:
            while len(_contexts) >= MOST_CONTEXTS:
                _contexts.pop(next(iter(_contexts)))
            context = _contexts[key] = WorkerContext(settings)
        return context


def close() -> None:
    """Close everything opened by this process."""
    with _lock:
        for context in _contexts.values():
            context.close()
        _contexts.clear()


atexit.register(close)


# Results of one image.
#
# The same image with the same question is judged once. The key of an entry covers all inputs of its
# results (`judging.ImageQuestion.make_key`): the digest of the manifest, the platform, the
# backend's sources, the node classes to check, the user's data files, and the code with its
# catalogue. The date is not included: no result of a fleet depends on it.


Value = TypeVar("Value")
#: Size limit of all results in a machine's folder; each has some 2 KB.
IMAGES_LIMIT = 500_000_000
#: Results in the cache, without data of the subject.
RESULTS = msgspec.msgpack.Decoder(prepare_type(tuple[FleetResult, ...]))


class CachedResults:
    """Results of earlier runs, without data of the subject."""

    def __init__(self, cache: Cache) -> None:
        self._store = cache.store(
            "fleet", source_digest(), limit=IMAGES_LIMIT, age=90 * DAY, by_use=True
        )

    def load(self, key: str) -> tuple[FleetResult, ...]:
        """Return the results for a key; none if it was not judged."""
        return self._store.load(key, RESULTS) or ()

    def save(self, key: str, results: Sequence[FleetResult]) -> None:
        """Save results that depend only on the key and contain no data of a subject."""
        self._store.save(key, tuple(results))


class ResultInterner:
    """Shares equal parts of many results in memory: most images are based on a few stacks."""

    def __init__(self) -> None:
        self._held: dict[object, Any] = {}

    def __call__(self, result: FleetResult, **changes: Any) -> FleetResult:
        """Return `result` with these changes, and findings and layers of equal earlier ones."""
        return replace(
            result,
            **changes,
            findings=self._first(tuple(map(self._first, result.findings))),
            layers=tuple(map(self._first, result.layers)),
        )

    def _first(self, value: Value) -> Value:
        first: Value = self._held.setdefault(value, value)
        return first


def add_subject(result: FleetResult, subject: Subject, alike: ResultInterner) -> FleetResult:
    """Return `result` with the fleet's data about the image."""
    repository, names = subject.reference, tuple[str, ...]()
    with suppress(UndecidedError):
        reference = Reference.parse(subject.reference)
        repository, names = reference.name, (reference.tag,) if reference.tag else ()
    return alike(
        result,
        repository=repository,
        names=names,
        places=subject.places,
        node_classes=subject.node_classes,
        containers=subject.containers,
        owner=result.owner or subject.owner,
    )


# Results of a repository's images in one entry.
#
# Each image has its own entry, written as soon as it is judged, so a later run would request ten
# thousand of them. Therefore a run writes one entry per repository at its end: the meaning of each
# tag, and the results. It only makes lookups faster: an image that is missing from it, or had
# another digest then, is looked up by itself.


#: Size limit of all entries in a machine's folder; an image has some 2 KB.
REPOSITORIES_LIMIT = 500_000_000
#: Minimum number of earlier runs' tags to keep beside those of this run: runs select differently,
#: and tags disappear.
_EARLIER = 100
_THREADS = 8


class RememberedImage(msgspec.Struct, frozen=True):
    """Results about the image of a tag at that time."""

    #: Digest of the index, if it was one.
    digest: str
    #: Key of all inputs of the results: `judging.ImageQuestion.make_key`.
    key: str
    #: Bytes saved by `CachedResults`; decoded when needed.
    packed: msgspec.Raw

    def results(self) -> tuple[FleetResult, ...]:
        """Return the results, without data of the subject. Raises `msgspec.MsgspecError`."""
        return RESULTS.decode(self.packed)


_REPOSITORY = msgspec.msgpack.Decoder(prepare_type(dict[str, RememberedImage]))


class RememberedResults:
    """Remembered results of the repositories of a fleet; thread-safe.

    Only runs with the same question share results: all `settings` count that affect results.
    """

    def __init__(self, cache: Cache, settings: WorkerSettings) -> None:
        self._store = cache.store(
            "fleet-repositories",
            source_digest(),
            limit=REPOSITORIES_LIMIT,
            age=90 * DAY,
            by_use=True,
        )
        asked = replace(settings, store="", today=date.min, time_limit=0.0)
        self._asked = hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()
        self._lock = threading.Lock()
        #: Repository to a lock held while its entry is read.
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        #: Repository to tag to image: from earlier runs, and from this run.
        self._earlier: dict[str, Mapping[str, RememberedImage]] = {}
        self._now: defaultdict[str, dict[str, RememberedImage]] = defaultdict(dict)
        #: Repositories with new results in this run.
        self._new: set[str] = set()

    def load(self, reference: Reference) -> RememberedImage | None:
        """Return the last run's results for a tag; None if it has none."""
        image = self._load_repository(reference.name).get(reference.version)
        if image is not None:
            with self._lock:
                self._now[reference.name].setdefault(reference.version, image)
        return image

    def keep(
        self, reference: Reference, digest: str, key: str, results: Sequence[FleetResult]
    ) -> None:
        """Record the results for a tag's current digest, see `RememberedImage`."""
        packed = msgspec.Raw(msgspec.msgpack.encode(tuple(results)))
        with self._lock:
            self._now[reference.name][reference.version] = RememberedImage(digest, key, packed)
            self._new.add(reference.name)

    def save(self) -> None:
        """Save new results for later runs; no more calls are allowed."""
        # A far store takes time for each.
        with ThreadPoolExecutor(_THREADS, "remember") as pool:
            for _ in pool.map(self._save, sorted(self._new)):
                pass

    def _load_repository(self, repository: str) -> Mapping[str, RememberedImage]:
        if repository not in self._earlier:
            with self._lock:
                reading = self._reading[repository]
            with reading:
                if repository not in self._earlier:
                    known = self._store.load(self._key(repository), _REPOSITORY)
                    self._earlier[repository] = known or {}
        return self._earlier[repository]

    def _save(self, repository: str) -> None:
        now = self._now[repository]
        others = [item for item in self._load_repository(repository).items() if item[0] not in now]
        kept = dict(islice(others, max(len(now), _EARLIER)))
        # Most recently seen tags come first.
        self._store.save(self._key(repository), now | kept)

    def _key(self, repository: str) -> str:
        return f"{repository} {self._asked}"
