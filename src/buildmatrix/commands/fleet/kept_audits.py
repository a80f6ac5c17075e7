"""What earlier runs said of files of repositories: what cannot have changed is not judged again.

An entry is found under the bytes of a file and of all that it reads, its backend, the platform,
the user's data files, and the code with its catalogue. A lock that names its wheels by their hashes
says the same every day. Where an index decides what is installed it is asked each time, and the
entry holds while the answer is the same. Waivers run out: an entry says until which day it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta

import msgspec

from buildmatrix.commands.fleet.audit_model import AuditTask
from buildmatrix.commands.fleet.model import WorkerSettings
from buildmatrix.errors import BuildmatrixError
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.sources.resolution.resolved import Resolved
from buildmatrix.spec.model import Waiver
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

#: Bytes of all entries in the folder of one machine; one has some 2 KB.
LIMIT = 500_000_000


class KeptAudit(msgspec.Struct, frozen=True):
    """The results for a file, without what is one repository's own."""

    results: tuple[FleetResult, ...]
    #: What the index answered; empty where none was asked.
    answer: str
    #: The days on which it holds, both included.
    first: date
    last: date

    def holds(self, today: date, answer: str) -> bool:
        """Whether the same would be said on this day, with this answer of the index."""
        return self.answer == answer and self.first <= today <= self.last


_KEPT = msgspec.msgpack.Decoder(prepare_type(KeptAudit))


class KeptAudits:
    """What is kept of one file."""

    def __init__(
        self, cache: Cache, settings: WorkerSettings, task: AuditTask, files: Mapping[str, bytes]
    ) -> None:
        self._store = cache.store(
            "fleet-audits", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True
        )
        self._today = settings.today
        about = (
            task.path,
            task.backend,
            sorted((name, hashlib.sha256(data).digest()) for name, data in files.items()),
            settings.platform,
            sorted(settings.data_files.items()),
        )
        self._key = hashlib.sha256(msgspec.msgpack.encode(about)).hexdigest()

    def load(self, answer: str = "") -> tuple[FleetResult, ...]:
        """The results, where they hold with this answer of the index; none otherwise."""
        kept = self._store.load(self._key, _KEPT)
        return kept.results if kept is not None and kept.holds(self._today, answer) else ()

    def save(
        self, results: Sequence[FleetResult], answer: str, waivers: Iterable[Waiver] = ()
    ) -> None:
        """Keep results that depend on nothing but the file, the answer and these waivers."""
        days = [waiver.expires for waiver in waivers]
        today = self._today
        first = max((day + timedelta(1) for day in days if day < today), default=date.min)
        last = min((day for day in days if day >= today), default=date.max)
        self._store.save(self._key, KeptAudit(tuple(results), answer, first, last))


def answer_of(resolved: Sequence[Resolved | BuildmatrixError], folder: str) -> str:
    """What an index said of the targets of a file; empty where none was asked.

    `folder`: where the file lies on this machine, which is no part of an answer.
    """
    if all(isinstance(item, Resolved) and not item.is_asked for item in resolved):
        return ""
    parts = [
        (
            item.target.python,
            item.lock.packages,
            item.lock.conda,
            item.lock.unread,
            item.lock.left_out,
            item.lock.is_completed,
        )
        if isinstance(item, Resolved)
        else item.message
        for item in resolved
    ]
    data = msgspec.msgpack.encode(parts).replace(folder.encode(), b"")
    return hashlib.sha256(data).hexdigest()
