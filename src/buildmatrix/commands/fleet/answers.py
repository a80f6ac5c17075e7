"""Results that are kept: the same image with the same question is judged once.

An entry is found under everything that its results depend on (`judging.Question.key`): the digest
of the manifest, the platform, what decides the backend, the node classes that the image is held
against, the user's data files, and the code with its catalogue. The day is not among them: nothing
that is said of an image of a fleet depends on it.
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
#: Bytes of all results in the folder of one machine; one has some 2 KB.
LIMIT = 500_000_000
#: Results as they are kept, without what only the subject knows.
RESULTS = msgspec.msgpack.Decoder(prepare_type(tuple[FleetResult, ...]))


class KeptResults:
    """Results of earlier runs, without what only the subject knows."""

    def __init__(self, cache: Cache) -> None:
        self._store = cache.store("fleet", source_digest(), limit=LIMIT, age=90 * DAY, by_use=True)

    def load(self, key: str) -> tuple[FleetResult, ...]:
        """The results under a key; none where nobody judged that."""
        return self._store.load(key, RESULTS) or ()

    def save(self, key: str, results: Sequence[FleetResult]) -> None:
        """Keep results that depend on nothing but the key and have nothing of a subject."""
        self._store.save(key, tuple(results))


class Alike:
    """Has what many results say alike in memory once: most images lie on a few stacks."""

    def __init__(self) -> None:
        self._held: dict[object, Any] = {}

    def __call__(self, result: FleetResult, **changes: Any) -> FleetResult:
        """`result` with these changes; findings and layers are those of an earlier one if equal."""
        return replace(
            result,
            **changes,
            findings=self._first(tuple(map(self._first, result.findings))),
            layers=tuple(map(self._first, result.layers)),
        )

    def _first(self, value: Value) -> Value:
        first: Value = self._held.setdefault(value, value)
        return first


def of_subject(result: FleetResult, subject: Subject, alike: Alike) -> FleetResult:
    """`result` with what the fleet says of the image."""
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
