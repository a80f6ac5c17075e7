"""Cache of results about repository files: unchanged files are not judged again.

The key of an entry covers the bytes of a file and of all that it reads, its backend, the platform,
the user's data files, and the code with its catalogue. A lock with hashes of its wheels has the
same result every day. If an index decides about distributions, it is queried each time, and the
entry is valid while the answer is the same. Waivers expire, so an entry has a last day.
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
from buildmatrix.sources.resolved import Resolved
from buildmatrix.spec.model import Waiver
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

#: Size limit of all entries in a machine's folder; each has some 2 KB.
LIMIT = 500_000_000


class CachedAudit(msgspec.Struct, frozen=True):
    """The results for a file, without data of a repository."""

    results: tuple[FleetResult, ...]
    #: The index's answer; empty if none was queried.
    answer: str
    #: The days on which it is valid, both included.
    first: date
    last: date

    def is_valid(self, today: date, answer: str) -> bool:
        """True if the results would be the same on this day, with this answer of the index."""
        return self.answer == answer and self.first <= today <= self.last


_CACHED_AUDIT = msgspec.msgpack.Decoder(prepare_type(CachedAudit))


class CachedAudits:
    """Cached results of one file."""

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
        """Return the results if valid with this answer of the index; else none."""
        kept = self._store.load(self._key, _CACHED_AUDIT)
        return kept.results if kept is not None and kept.is_valid(self._today, answer) else ()

    def save(
        self, results: Sequence[FleetResult], answer: str, waivers: Iterable[Waiver] = ()
    ) -> None:
        """Save results that depend only on the file, the answer and these waivers."""
        days = [waiver.expires for waiver in waivers]
        today = self._today
        first = max((day + timedelta(1) for day in days if day < today), default=date.min)
        last = min((day for day in days if day >= today), default=date.max)
        self._store.save(self._key, CachedAudit(tuple(results), answer, first, last))


def summarize_answer(resolved: Sequence[Resolved | BuildmatrixError], folder: str) -> str:
    """Return an index's answer about the targets of a file; empty if none was queried.

    `folder` is the local location of the file, which is not part of the answer.
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
