"""Repositories of registries, and their tags, requested once per run.

Sources overlap: three patterns for one registry need its catalog once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from buildmatrix.errors import UndecidedError
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference


@dataclass(frozen=True, slots=True)
class ListedNames:
    """The names in a list, as far as received."""

    names: tuple[str, ...]
    #: Why the rest is missing; None for a complete list.
    error: UndecidedError | None = None


class RegistryLists:
    """Lists of all registries; no list is requested by two threads at once."""

    def __init__(self, registry: Callable[[], Registry], progress: Progress) -> None:
        self._registry = registry
        self._progress = progress
        self._lists: dict[Hashable, ListedNames] = {}

    @property
    def registry(self) -> Registry:
        """Registry client."""
        return self._registry()

    def repositories(self, host: str) -> ListedNames:
        """Return the names of all repositories of a registry."""
        if host not in self._lists:
            self._progress.note(f"asking {host} for its repositories")
        return self._request(host, lambda: self.registry.repositories(host))

    def tags(self, reference: Reference) -> ListedNames:
        """Return the tags of a repository."""
        return self._request(reference, lambda: self.registry.tags(reference))

    def _request(self, key: Hashable, ask: Callable[[], Iterator[str]]) -> ListedNames:
        listed = self._lists.get(key)
        if listed is None:
            names: list[str] = []
            error: UndecidedError | None = None
            try:
                names += ask()
            except UndecidedError as failure:
                error = failure
            listed = self._lists[key] = ListedNames(tuple(names), error)
        return listed
