"""What registries list: their repositories and the tags of each, asked for once in a run.

Sources overlap: three patterns of one registry need its catalog once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from buildmatrix.errors import UndecidedError
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference


@dataclass(frozen=True, slots=True)
class Listed:
    """The names of a list, as far as they came."""

    names: tuple[str, ...]
    #: Why the rest is missing; None for a list that is whole.
    error: UndecidedError | None = None


class RegistryLists:
    """Lists of all registries; no list is asked for by two threads at once."""

    def __init__(self, registry: Callable[[], Registry], progress: Progress) -> None:
        self._registry = registry
        self._progress = progress
        self._lists: dict[Hashable, Listed] = {}

    @property
    def registry(self) -> Registry:
        """Whom to ask for anything else."""
        return self._registry()

    def repositories(self, host: str) -> Listed:
        """The names of all repositories of a registry."""
        if host not in self._lists:
            self._progress.note(f"asking {host} for its repositories")
        return self._listed(host, lambda: self.registry.repositories(host))

    def tags(self, reference: Reference) -> Listed:
        """The tags of a repository."""
        return self._listed(reference, lambda: self.registry.tags(reference))

    def _listed(self, key: Hashable, ask: Callable[[], Iterator[str]]) -> Listed:
        listed = self._lists.get(key)
        if listed is None:
            names: list[str] = []
            error: UndecidedError | None = None
            try:
                names += ask()
            except UndecidedError as failure:
                error = failure
            listed = self._lists[key] = Listed(tuple(names), error)
        return listed
