"""Cached results about the Python files of distributions; see `inventory.python_memory`."""

from __future__ import annotations

import msgspec

from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.inventory.python_memory import PythonAnswer
from buildmatrix.store.cache import DAY, Cache, source_digest
from buildmatrix.threads import prepare_type

#: Total bytes of all results; that of torch has 0.2 MB.
MAX_CACHED_BYTES = 200_000_000
#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_ANSWER_DECODER = msgspec.msgpack.Decoder(prepare_type(PythonAnswer))


class PythonAnswers:
    """The methods of a `PythonMemory` that do not depend on the kind of tree."""

    def __init__(self, cache: Cache) -> None:
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'store')}"
        self._store = cache.store(
            "python", version, limit=MAX_CACHED_BYTES, age=90 * DAY, by_use=True
        )

    def recall_python(self, key: str) -> PythonAnswer | None:
        """See `PythonMemory.recall_python`."""
        return self._store.load(key, _ANSWER_DECODER)

    def keep_python(self, key: str, answer: PythonAnswer) -> None:
        """See `PythonMemory.keep_python`."""
        self._store.save(key, answer)
