"""Inventory of a tree of which only some files were opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from buildmatrix.inventory.collect import collect
from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.inventory.mattering import LEAST, may_hide, may_matter
from buildmatrix.inventory.model import ClosedFile, Inventory
from buildmatrix.trees.base import File, Tree


class _ShallowMemory:
    """A `collect.FactMemory` with every file; unopened files have no facts."""

    def __init__(self, facts: Mapping[str, FileFacts]) -> None:
        self._facts = facts

    def recall(self, file: File) -> FileFacts | None:
        """See `collect.FactMemory.recall`."""
        return self._facts.get(file.path, FileFacts())

    def keep(self, file: File, facts: FileFacts) -> None:
        """See `collect.FactMemory.keep`."""


def collect_shallow(
    tree: Tree,
    facts: Mapping[str, FileFacts],
    opened: Collection[str],
    unmasked: Collection[str] = (),
    lazy: Collection[str] = (),
) -> Inventory:
    """Collect the facts of `tree`, with only the files in `facts` opened.

    The tree provides the bytes of metadata, and of the Python files in `facts`; no other file is
    opened. Possibly relevant files that are not `opened` are in `Inventory.closed`, and so is every
    large file with a harmless name: names do not decide. `unmasked` are files among these that are
    binaries by their first bytes, `lazy` the Python files that no import runs.
    """
    inventory = collect(tree, memory=_ShallowMemory(facts))
    owners = [distribution.owner for distribution in inventory.distributions]
    owner = owners[0] if len(owners) == 1 else None
    unopened = (file for file in tree.walk() if isinstance(file, File) and file.path not in opened)
    closed = tuple(
        ClosedFile(file.path, file.size, owner, by, file.path in lazy)
        for file in unopened
        if (by := _find_relevance(file, unmasked)) is not None
    )
    return replace(inventory, closed=closed, stats=replace(inventory.stats, cached=0))


def _find_relevance(
    file: File, unmasked: Collection[str]
) -> Literal["name", "bytes", "size"] | None:
    """Return the reason for a file's relevance; None if irrelevant."""
    if file.path in unmasked:
        return "bytes"
    if may_matter(file.path, file.size):
        return "name"
    return "size" if file.size >= LEAST and may_hide(file.path, file.size) else None
