"""Memory of earlier scans: facts of single files, and of the Python files of distributions.

Facts depend on a file's path and size, and on the bytes that the reader asked for. Python files are
hashed whole, since answers about distributions are stored under these hashes. Of a binary, which
may be of a gigabyte, the reader skips most; the bytes that it got are sealed.

An answer about a distribution depends on its files and little else. The tree names their bytes, so
that a distribution of an earlier tree is not parsed again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Protocol

from buildmatrix.facts.inventory.file_facts import (
    ELF_MAGIC,
    FileFacts,
    ReadBytes,
    inspect,
    inspect_source,
    is_python,
)
from buildmatrix.facts.inventory.model import Binary, PythonImport, PythonLoad, Unparsed
from buildmatrix.facts.python_imports.source import LARGEST_SEARCHED, runs_at_startup
from buildmatrix.facts.python_imports.walk import ReachedFrom
from buildmatrix.facts.trees.archive import BytesSource
from buildmatrix.facts.trees.base import File, RandomAccess, Tree, defect, reason

# Files, recognized by their bytes


#: Bytes read of a file that is sealed. Reading the facts of others again costs little more than
#: opening them.
SMALLEST_SEALED = 64 << 10
#: Reads of a file that is sealed; libcufft has fifty thousand device-code entries.
MOST_READS = 1 << 17
#: Bytes per read of a recognition.
_CHUNK = 512 << 10


class Seal(Protocol):
    """A message authentication code with a secret key."""

    def update(self, data: bytes) -> None:
        """Add bytes."""

    def finish(self) -> bytes:
        """Return the code."""


class FactMemory(Protocol):
    """Facts of a tree's files from earlier scans; `images.store` has a persistent one."""

    @property
    def seal(self) -> Callable[[bytes], Seal] | None:
        """Begins a seal to compare with an earlier code, or a new one for empty bytes.

        None if binaries are not recognized.
        """

    def recall(self, file: File) -> FileFacts | None:
        """Return the facts of `file` with these bytes; None if unknown."""

    def earlier(self, file: File) -> FileFacts | None:
        """Return facts of a file at this path, which hold for all files that are recognized."""

    def keep(self, file: File, facts: FileFacts) -> None:
        """Store the facts of `file`; called for all files, also those just recalled."""


def inspect_unless_known(
    tree: Tree, file: File, earlier: FileFacts, make_seal: Callable[[bytes], Seal] | None
) -> FileFacts:
    """Inspect `file` of `tree`, unless it has the bytes of `earlier`; see `is_known`."""
    path, size = file.path, file.size
    if size < len(ELF_MAGIC):
        return FileFacts()
    is_hashed = size <= LARGEST_SEARCHED and (is_python(path) or runs_at_startup(path))
    if not is_hashed and make_seal is None:
        return inspect(tree, file)
    try:
        with tree.open(path) as source:
            if is_hashed:
                # Read once: the file may change in between.
                data = source.read(0, size)
                digest = hashlib.sha256(data).digest()
                if digest == earlier.sha256:
                    return FileFacts(sha256=digest, bytes_read=len(data))
                return replace(inspect_source(BytesSource(data), path, size), sha256=digest)
            assert make_seal is not None
            sealed = earlier.sealed
            if sealed is not None and sealed.size == size and _has_bytes(source, sealed, make_seal):
                return FileFacts(sealed=sealed, bytes_read=source.bytes_read)
            recorder = _Recorder(source, make_seal)
            facts = inspect_source(recorder, path, size)
            # The contents of a container are read later.
            if facts.unread is None and facts.contents is None:
                return replace(facts, sealed=recorder.sealed(size))
            return facts
    except OSError as error:
        return FileFacts(unread=reason(error))
    except Exception as error:
        return FileFacts(unread=defect(error))


def is_known(facts: FileFacts, earlier: FileFacts) -> bool:
    """True if `facts` say only that the file has the bytes of `earlier`."""
    if facts.sha256 is not None:
        return facts.sha256 == earlier.sha256
    return facts.sealed is not None and facts.sealed == earlier.sealed


def _has_bytes(source: RandomAccess, sealed: ReadBytes, make_seal: Callable[[bytes], Seal]) -> bool:
    """True if the file has the sealed bytes, at the same places."""
    seal = make_seal(sealed.code)
    for offset, length in zip(sealed.places[::2], sealed.places[1::2], strict=True):
        for at in range(offset, offset + length, _CHUNK):
            wanted = min(_CHUNK, offset + length - at)
            data = source.read(at, wanted)
            if len(data) < wanted:
                return False
            seal.update(data)
    return compare_digest(seal.finish(), sealed.code)


class _Recorder:
    """A source that seals the bytes that it returns."""

    def __init__(self, source: RandomAccess, make_seal: Callable[[bytes], Seal]) -> None:
        self._source = source
        self._make_seal = make_seal
        self._seal: Seal | None = None
        self._places: list[int] = []
        #: The first bytes: most files have no others, and need no seal.
        self._first: list[bytes] = []
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `RandomAccess.read`."""
        data = self._source.read(offset, length)
        self.bytes_read += len(data)
        if data and len(self._places) <= 2 * MOST_READS:
            self._places += (offset, len(data))
            if self._seal is not None:
                self._seal.update(data)
            else:
                self._first.append(data)
                if self.bytes_read >= SMALLEST_SEALED:
                    self._seal = self._make_seal(b"")
                    self._seal.update(b"".join(self._first))
                    self._first.clear()
        return data

    def sealed(self, size: int) -> ReadBytes | None:
        """Return what was read of the file of `size` bytes; None if too little or too much."""
        if self._seal is None or len(self._places) > 2 * MOST_READS:
            return None
        return ReadBytes(size, tuple(self._places), self._seal.finish())


# The Python files of a distribution


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """Facts from the Python files of a tree."""

    #: Sorted by path and line.
    loads: tuple[PythonLoad, ...] = ()
    unparsed: tuple[Unparsed, ...] = ()
    imports: tuple[PythonImport, ...] = ()
    #: Path of a binary to how an import reaches it.
    reach: Mapping[str, ReachedFrom] = field(default_factory=dict)

    def add_reach(self, binary: Binary) -> Binary:
        """Return `binary` with its reach."""
        reached = self.reach.get(binary.path)
        if reached is None:
            return binary
        return replace(binary, reach=reached.reach, reached_from=reached.place or None)


@dataclass(frozen=True, slots=True)
class TreeModule:
    """A module of the tree."""

    #: The part of a dotted name that is the module.
    module: str
    owner: str | None
    #: True if a call of it may load a library: compiled, or with loading calls.
    loads: bool


@dataclass(frozen=True, slots=True)
class PythonAnswer:
    """Results about one distribution."""

    facts: PythonFacts
    #: Bytes of source parsed for it, counted against the limit of a tree.
    parsed: int = 0
    #: Dotted name to its module in the tree: the answer depends on these beside the files of the
    #: distribution.
    modules: Mapping[str, TreeModule | None] = field(default_factory=dict)


class PythonMemory(Protocol):
    """Answers of earlier scans; `buildmatrix.images.store` has a persistent one."""

    def content(self, file: File) -> bytes | None:
        """Return a key unique to the bytes of `file`; None if there is none for sure.

        It is the SHA-256 if the file has at most `LARGEST_SEARCHED` bytes.
        """

    def recall_python(self, key: str) -> PythonAnswer | None:
        """Return the answer stored under `key`."""

    def keep_python(self, key: str, answer: PythonAnswer) -> None:
        """Store an answer that depends only on the inputs in `key`, and on its modules."""


def is_unchanged(memory: PythonMemory | None, file: File, data: bytes) -> bool:
    """Return True if `data` are the bytes in an answer's key: a file may change during a scan."""
    return memory is None or memory.content(file) == hashlib.sha256(data).digest()


def make_answer_key(
    memory: PythonMemory, question: str, facts: Iterable[object], files: Iterable[File]
) -> str | None:
    """Return the key of an answer's inputs; None if the bytes of a file have no name.

    `question` names the computation, `facts` (texts and numbers) its inputs beside the `files`.
    """
    hasher = hashlib.sha256()
    # Another Python parses other sources.
    for word in (question, *sys.version_info[:2], *facts):
        hasher.update(b"%s\0" % os.fsencode(str(word)))
    for file in files:
        content = memory.content(file)
        if content is None:
            return None
        hasher.update(b"\0%s\0%d\0%d\0" % (os.fsencode(file.path), file.size, len(content)))
        hasher.update(content)
    return hasher.hexdigest()
