"""What earlier runs said of all images of a repository, in one entry of the store.

Each image has an entry of its own, which is written as soon as it is judged (`answers`). A later
run would ask the store for ten thousand of them. So a run leaves, at its end, one entry for each
repository: what each tag meant, and what was said of that. It speeds up what others say, and says
nothing else: an image that is not in it, or meant something else then, is looked for by itself.
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

#: Bytes of all entries in the folder of one machine; an image has some 2 KB.
LIMIT = 500_000_000
#: Tags of earlier runs that are kept beside as many of this one: runs select in different ways, and
#: tags vanish.
_EARLIER = 100
_THREADS = 8


class RememberedImage(msgspec.Struct, frozen=True):
    """What was said of what a tag meant."""

    #: Of an index, where it meant one.
    digest: str
    #: Names everything that the results depend on: `judging.Question.key`.
    key: str
    #: As `answers.KeptResults` keeps them; read where they are wanted.
    packed: msgspec.Raw

    def results(self) -> tuple[FleetResult, ...]:
        """The results, without what only the subject knows. Raises `msgspec.MsgspecError`."""
        return RESULTS.decode(self.packed)


_REPOSITORY = msgspec.msgpack.Decoder(prepare_type(dict[str, RememberedImage]))


class Remembered:
    """What is remembered of the repositories of a fleet; for all threads at once.

    Only runs that ask the same remember each other's results: `settings` count but for what no
    result depends on.
    """

    def __init__(self, cache: Cache, settings: WorkerSettings) -> None:
        self._store = cache.store(
            "fleet-repositories", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True
        )
        asked = replace(settings, store="", today=date.min, time_limit=0.0)
        self._asked = hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()
        self._lock = threading.Lock()
        #: Repository → held while its entry is read.
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        #: Repository → tag → image: those of earlier runs, and those of this run.
        self._earlier: dict[str, Mapping[str, RememberedImage]] = {}
        self._now: defaultdict[str, dict[str, RememberedImage]] = defaultdict(dict)
        #: Repositories of which this run says something new.
        self._new: set[str] = set()

    def load(self, reference: Reference) -> RememberedImage | None:
        """What the last run said of what a tag meant then; None where it said nothing."""
        image = self._of(reference.name).get(reference.version)
        if image is not None:
            with self._lock:
                self._now[reference.name].setdefault(reference.version, image)
        return image

    def keep(
        self, reference: Reference, digest: str, key: str, results: Sequence[FleetResult]
    ) -> None:
        """Remember what was said of what a tag means now, see `RememberedImage`."""
        packed = msgspec.Raw(msgspec.msgpack.encode(tuple(results)))
        with self._lock:
            self._now[reference.name][reference.version] = RememberedImage(digest, key, packed)
            self._new.add(reference.name)

    def save(self) -> None:
        """Leave what is new to later runs; nothing may be kept or loaded any more."""
        # A store that is far away takes its time for each.
        with ThreadPoolExecutor(_THREADS, "remember") as pool:
            for _ in pool.map(self._save, sorted(self._new)):
                pass

    def _of(self, repository: str) -> Mapping[str, RememberedImage]:
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
        others = [item for item in self._of(repository).items() if item[0] not in now]
        kept = dict(islice(others, max(len(now), _EARLIER)))
        # What was seen last stands first.
        self._store.save(self._key(repository), now | kept)

    def _key(self, repository: str) -> str:
        return f"{repository} {self._asked}"
