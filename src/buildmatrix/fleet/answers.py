"""Caches of results: of one image, and of all images of a repository.

The same image with the same question is judged once. The key of an entry covers all inputs of its
results (`judging.ImageQuestion.make_key`): the digest of the manifest, the platform, the backend's
sources, the node classes to check, the user's data files, and the code with its catalogue. The date
is not included: no result of a fleet depends on it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from itertools import islice
from typing import Any, TypeVar

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.fleet.model import Subject, WorkerSettings
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.net.registry.mirrors import Reference
from buildmatrix.reports.fleet.model import FleetResult

# Results of one image


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
