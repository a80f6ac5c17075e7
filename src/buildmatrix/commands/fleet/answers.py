"""Cache of results: the same image with the same question is judged once.

The key of an entry covers all inputs of its results (`judging.ImageQuestion.make_key`): the digest
of the manifest, the platform, the backend's sources, the node classes to check, the user's data
files, and the code with its catalogue. The date is not included: no result of a fleet depends on
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from buildmatrix.commands.fleet.model import Subject
from buildmatrix.errors import UndecidedError
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

Value = TypeVar("Value")
#: Size limit of all results in a machine's folder; each has some 2 KB.
LIMIT = 500_000_000
#: Results in the cache, without data of the subject.
RESULTS = msgspec.msgpack.Decoder(prepare_type(tuple[FleetResult, ...]))


class CachedResults:
    """Results of earlier runs, without data of the subject."""

    def __init__(self, cache: Cache) -> None:
        self._store = cache.store("fleet", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True)

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
