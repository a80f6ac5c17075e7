"""Answers about the Python files of distributions, on disk; see `inventory.python_memory`."""

from __future__ import annotations

import msgspec

from buildmatrix.inventory.archive import PACKAGES
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.inventory.python_memory import PythonAnswer
from buildmatrix.store.cache import DAY, Cache, code
from buildmatrix.threads import prepare_type

#: Bytes of all answers together; that about torch has 0.2 MB.
LIMIT = 200_000_000
#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
_ANSWER = msgspec.msgpack.Decoder(prepare_type(PythonAnswer))


class PythonAnswers:
    """The two halves of a `PythonMemory` that do not depend on the kind of tree."""

    def __init__(self, cache: Cache) -> None:
        version = f"{SCHEMA} {code(*PACKAGES, 'store')}"
        self._store = cache.store("python", version, limit=LIMIT, age=90 * DAY, by_use=True)

    def recall_python(self, key: str) -> PythonAnswer | None:
        """See `PythonMemory.recall_python`."""
        return self._store.load(key, _ANSWER)

    def keep_python(self, key: str, answer: PythonAnswer) -> None:
        """See `PythonMemory.keep_python`."""
        self._store.save(key, answer)
