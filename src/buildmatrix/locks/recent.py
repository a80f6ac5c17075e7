"""Resolutions of the last minutes, so that an audit that is run again does not ask the index again.

An entry is addressed by everything that decided it. It is young for as long as PyPI lets its pages
be kept (`Cache-Control: max-age=600`), as uv's own cache keeps them; offline, any age will do.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import suppress
from pathlib import Path

from buildmatrix.errors import UndecidedError
from buildmatrix.files import write_changed

#: Seconds.
YOUNG = 600.0
#: Seconds after which an entry is of no use even offline.
_OLD = 30 * 86400.0
#: Bytes of one entry at most; the largest real ones have some 2 MB.
_LARGEST = 64 * 1024 * 1024
#: An address with a query: a token or a signature, which opens the file for whoever has it.
_SIGNED = re.compile(rb"://[^\s\"'\\]*\?")


class Recent:
    """Entries in `folder`; None keeps nothing. Trouble with the folder never fails a run."""

    def __init__(self, folder: Path | None, *, offline: bool = False) -> None:
        self._folder = folder
        self._limit = _OLD if offline else YOUNG

    def get(self, key: str) -> bytes | None:
        """What was kept under `key`, where it is young enough and whole."""
        path = self._path(key)
        if path is None:
            return None
        try:
            status = path.stat()
            if not 0 <= time.time() - status.st_mtime < self._limit or status.st_size > _LARGEST:
                return None
            data = path.read_bytes()
        except OSError:
            return None
        digest, _, body = data.partition(b"\n")
        return body if digest == hashlib.sha256(body).hexdigest().encode() else None

    def put(self, key: str, body: bytes) -> None:
        """Keep `body`, and forget what is old. What signs an address is not kept for others."""
        path = self._path(key)
        if path is None or _SIGNED.search(body):
            return
        with suppress(UndecidedError, OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_changed(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            path.touch()  # a file that had this content already was not written
            for other in path.parent.iterdir():
                if time.time() - other.stat().st_mtime > _OLD:
                    other.unlink()

    def _path(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{key}.json"
