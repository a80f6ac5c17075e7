"""Results about the Python files of a distribution, for the next tree with that distribution.

An answer depends on the files of one distribution and little else. The tree names their bytes, so
that a distribution of an earlier tree is not parsed again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from buildmatrix.facts.inventory.model import Binary, PythonImport, PythonLoad, Unparsed
from buildmatrix.facts.python_imports.walk import ReachedFrom
from buildmatrix.facts.trees.base import File


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
