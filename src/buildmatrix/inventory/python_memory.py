"""What was worked out about the Python files of a distribution, for the next tree that has it.

An answer depends on the files of one distribution and on little else. Their bytes are named by
what the tree knows of them, so a distribution that an earlier tree had as well is not parsed again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from buildmatrix.inventory.model import Binary, Distribution, PythonImport, PythonLoad, Unparsed
from buildmatrix.python_imports.walk import Reached
from buildmatrix.trees.base import File


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """What the Python files of a tree say."""

    #: Sorted by path and line.
    loads: tuple[PythonLoad, ...] = ()
    unparsed: tuple[Unparsed, ...] = ()
    imports: tuple[PythonImport, ...] = ()
    #: Path of a binary → how an import gets to it.
    reach: Mapping[str, Reached] = field(default_factory=dict)

    def reached(self, binary: Binary) -> Binary:
        """`binary` with its reach."""
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
    #: Whether a call of it may load a library: compiled, or with calls that load.
    loads: bool


@dataclass(frozen=True, slots=True)
class PythonAnswer:
    """What was worked out about one distribution."""

    facts: PythonFacts
    #: Bytes of source that were parsed for it, of those that a tree allows.
    parsed: int = 0
    #: Dotted name → the module of the tree that it means: what the answer depends on beside the
    #: files of the distribution.
    modules: Mapping[str, TreeModule | None] = field(default_factory=dict)


class PythonMemory(Protocol):
    """Answers of earlier scans; `buildmatrix.store` has one that lasts."""

    def content(self, file: File) -> bytes | None:
        """What names the bytes of `file`, and no others; None where nothing is sure to."""

    def recall_python(self, key: str) -> PythonAnswer | None:
        """The answer that was kept under `key`."""

    def keep_python(self, key: str, answer: PythonAnswer) -> None:
        """Keep an answer that nothing but what `key` names, and its modules, decided."""


def answer_key(
    memory: PythonMemory, question: str, facts: Iterable[object], files: Iterable[File]
) -> str | None:
    """Names all that an answer depends on; None where a file has no name for its bytes.

    `question` is what is worked out, `facts` (texts and numbers) what is given beside the `files`.
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


def sites_of(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Owner → the folder that its modules begin at, with a slash at its end or empty."""
    return {item.owner: item.path[: item.path.rfind("/") + 1] for item in distributions}
