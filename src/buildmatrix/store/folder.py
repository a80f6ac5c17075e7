"""What was seen in each file of a folder, for the next scan of the same folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from buildmatrix.inventory.collect import FileFacts
from buildmatrix.trees.base import File
from buildmatrix.trees.directory import changed_ns


@dataclass(frozen=True, slots=True)
class FileMemory:
    """What is remembered of one file: its stamp, and what was seen; None for nothing of note."""

    stamp: bytes
    seen: FileFacts | None = None


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
FILES = msgspec.msgpack.Decoder(dict[bytes, FileMemory])


class FolderMemory:
    """An `inventory.collect.FactMemory` for one scan of one folder."""

    def __init__(self, known: Mapping[bytes, FileMemory], settled_ns: int) -> None:
        self._known = known
        self._settled_ns = settled_ns
        #: Path → what is to be stored: the files of this scan, and no others.
        self.files: dict[bytes, FileMemory] = {}

    @property
    def changed(self) -> bool:
        """Whether `files` says anything else than what was known before the scan."""
        return self.files != self._known

    def recall(self, file: File) -> FileFacts | None:
        """See `Memory.recall`."""
        memory = self._known.get(os.fsencode(file.path))
        if memory is None or memory.stamp != file.stamp:
            return None
        return memory.seen or FileFacts()

    def keep(self, file: File, seen: FileFacts) -> None:
        """See `Memory.keep`. What could not be read is tried again next time."""
        if file.stamp is None or seen.unread is not None:
            return
        if changed_ns(file.stamp) >= self._settled_ns:
            return
        bare = replace(seen, bytes_read=0)
        path = os.fsencode(file.path)
        self.files[path] = FileMemory(file.stamp, bare if bare != FileFacts() else None)
