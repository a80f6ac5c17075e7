"""The facts of each file of a folder, for the next scan of the same folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.store.python_answers import PythonAnswers
from buildmatrix.threads import prepare_type
from buildmatrix.trees.base import File
from buildmatrix.trees.directory import changed_ns


@dataclass(frozen=True, slots=True)
class FileMemory:
    """What is remembered of one file: its stamp, and its facts; None for no facts."""

    stamp: bytes
    facts: FileFacts | None = None


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
FILES = msgspec.msgpack.Decoder(prepare_type(dict[bytes, FileMemory]))


class FolderMemory:
    """A `FactMemory` and a `PythonMemory` for one scan of one folder."""

    def __init__(
        self, files: Mapping[bytes, FileMemory], settled_ns: int, answers: PythonAnswers
    ) -> None:
        self.recall_python = answers.recall_python
        self.keep_python = answers.keep_python
        self._earlier = files
        self._settled_ns = settled_ns
        #: Path → what is to be stored: the files of this scan, and no others.
        self.files: dict[bytes, FileMemory] = {}

    @property
    def changed(self) -> bool:
        """Whether `files` differs from what was known before the scan."""
        return self.files != self._earlier

    def recall(self, file: File) -> FileFacts | None:
        """See `FactMemory.recall`."""
        memory = self._earlier.get(os.fsencode(file.path))
        if memory is None or memory.stamp != file.stamp:
            return None
        return memory.facts or FileFacts()

    def content(self, file: File) -> bytes | None:
        """See `PythonMemory.content`."""
        is_settled = file.stamp is not None and changed_ns(file.stamp) < self._settled_ns
        return file.stamp if is_settled else None

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `FactMemory.keep`. What could not be read is tried again next time."""
        stamp = self.content(file)
        if stamp is None or facts.unread is not None:
            return
        bare = replace(facts, bytes_read=0)
        path = os.fsencode(file.path)
        self.files[path] = FileMemory(stamp, bare if bare != FileFacts() else None)
