"""Results of earlier runs about all images of a repository, in one store entry.

Each image has its own entry, written as soon as it is judged (`answers`), so a later run would
request ten thousand of them. Therefore a run writes one entry per repository at its end: the
meaning of each tag, and the results. It only makes lookups faster: an image that is missing from
it, or had another digest then, is looked up by itself.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from itertools import islice

import msgspec

from buildmatrix.commands.fleet.answers import RESULTS
from buildmatrix.commands.fleet.model import WorkerSettings
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

#: Size limit of all entries in a machine's folder; an image has some 2 KB.
LIMIT = 500_000_000
#: Minimum number of earlier runs' tags to keep beside those of this run: runs select differently,
#: and tags disappear.
_EARLIER = 100
_THREADS = 8


class RememberedImage(msgspec.Struct, frozen=True):
    """Results about the image of a tag at that time."""

    #: Of the index, if it was one.
    digest: str
    #: Key of all inputs of the results: `judging.ImageQuestion.make_key`.
    key: str
    #: As saved by `answers.CachedResults`; decoded when needed.
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
            "fleet-repositories", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True
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
