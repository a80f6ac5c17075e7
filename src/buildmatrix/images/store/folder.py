"""Cached facts of each file in a folder, and of its Python distributions."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.archive import PACKAGES
from buildmatrix.facts.inventory.file_facts import FileFacts
from buildmatrix.facts.inventory.memory import PythonAnswer
from buildmatrix.facts.inventory.model import SCHEMA
from buildmatrix.facts.trees.archive import changed_ns
from buildmatrix.facts.trees.base import File
from buildmatrix.images.store.cache import DAY, Cache, source_digest

# Python distributions; see `facts.inventory.memory`


#: Total bytes of all results; that of torch has 0.2 MB.
MAX_CACHED_BYTES = 200_000_000
#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_ANSWER_DECODER = msgspec.msgpack.Decoder(prepare_type(PythonAnswer))


class PythonAnswers:
    """The methods of a `PythonMemory` that do not depend on the kind of tree.

    `is_shared`: see `Cache.store`; False where stamps name the bytes of files.
    """

    def __init__(self, cache: Cache, *, is_shared: bool = True) -> None:
        version = f"{SCHEMA} {source_digest(*PACKAGES, 'images/store')}"
        self._store = cache.store(
            "python",
            version,
            limit=MAX_CACHED_BYTES,
            age=90 * DAY,
            by_use=True,
            is_shared=is_shared,
        )

    def recall_python(self, key: str) -> PythonAnswer | None:
        """See `PythonMemory.recall_python`."""
        return self._store.load(key, _ANSWER_DECODER)

    def keep_python(self, key: str, answer: PythonAnswer) -> None:
        """See `PythonMemory.keep_python`."""
        self._store.save(key, answer)


# Files


class FileMemory(Struct, frozen=True):
    """Stamp and facts of one file; None for no facts, and for a file that had just changed."""

    stamp: bytes | None
    facts: FileFacts | None = None


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
FILES_DECODER = msgspec.msgpack.Decoder(prepare_type(dict[bytes, FileMemory]))


class ByteSeal:
    """GMAC (NIST SP 800-38D) of bytes: ten times as fast as SHA-256, and safe if `key` is secret.

    `code` is an earlier one, or empty for a new one.
    """

    _NONCE = 12

    def __init__(self, key: bytes, code: bytes) -> None:
        # Imported here: scans without a change need no seal.
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import GCM

        self._nonce = code[: self._NONCE] or secrets.token_bytes(self._NONCE)
        self._mac = Cipher(AES(key), GCM(self._nonce)).encryptor()

    def update(self, data: bytes) -> None:
        """See `Seal.update`."""
        self._mac.authenticate_additional_data(data)

    def finish(self) -> bytes:
        """See `Seal.finish`."""
        self._mac.finalize()
        return self._nonce + self._mac.tag


class FolderMemory:
    """`FactMemory` and `PythonMemory` for one scan of one folder.

    With a secret `key` of 32 bytes, binaries are recognized.
    """

    def __init__(
        self,
        files: Mapping[bytes, FileMemory],
        settled_ns: int,
        answers: PythonAnswers,
        key: bytes = b"",
    ) -> None:
        self.seal = partial(ByteSeal, key) if key else None
        self.recall_python = answers.recall_python
        self.keep_python = answers.keep_python
        self._earlier = files
        self._settled_ns = settled_ns
        #: Path → entry to store: only the files of this scan.
        self.files: dict[bytes, FileMemory] = {}

    def recall(self, file: File) -> FileFacts | None:
        """See `FactMemory.recall`."""
        memory = self._earlier.get(os.fsencode(file.path))
        if memory is None or memory.stamp is None or memory.stamp != file.stamp:
            return None
        return memory.facts or FileFacts()

    def earlier(self, file: File) -> FileFacts | None:
        """See `FactMemory.earlier`."""
        memory = self._earlier.get(os.fsencode(file.path))
        return None if memory is None else memory.facts

    def content(self, file: File) -> bytes | None:
        """See `PythonMemory.content`."""
        memory = self.files.get(os.fsencode(file.path))
        digest = memory.facts.sha256 if memory is not None and memory.facts is not None else None
        return self._settled_stamp(file) if digest is None else digest

    def _settled_stamp(self, file: File) -> bytes | None:
        is_settled = file.stamp is not None and changed_ns(file.stamp) < self._settled_ns
        return file.stamp if is_settled else None

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `FactMemory.keep`. Unreadable files are tried again next time."""
        stamp = self._settled_stamp(file)
        is_recognized = facts.sha256 is not None or facts.sealed is not None
        if (stamp is None and not is_recognized) or facts.unread is not None:
            return
        # Most files have none.
        is_bare = facts == FileFacts(bytes_read=facts.bytes_read)
        stored = None if is_bare else replace(facts, bytes_read=0) if facts.bytes_read else facts
        self.files[os.fsencode(file.path)] = FileMemory(stamp, stored)
