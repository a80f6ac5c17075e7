"""Repository access of workers, whose credentials are their own.

A worker reads credentials where it runs, so a worker with another setup may have less access.
Refused work goes to another worker, and the report lists the workers without credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from buildmatrix.phrases import listing
from buildmatrix.registry.reference import Reference

#: Refused workers after which a repository counts as closed to all: more requests from hundreds of
#: workers would look like an attack.
_MOST_REFUSED = 3
_MOST_NAMED = 5


@dataclass(slots=True)
class RepositoryAccess:
    """Access of workers, by address, to one repository."""

    given: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def note(self, worker: str, *, denied: bool) -> None:
        """Record the registry's latest answer to a worker."""
        now, before = (self.refused, self.given) if denied else (self.given, self.refused)
        now[worker] = None
        before.pop(worker, None)

    def may_have_more(self, workers: int) -> bool:
        """True if another of this many workers may have the access that one lacks."""
        return bool(self.given) or len(self.refused) < min(workers, _MOST_REFUSED)


def describe_problems(accesses: Mapping[str, RepositoryAccess]) -> Iterator[str]:
    """Yield problems with the credentials of workers; `accesses` by repository name."""
    #: Registry, workers, and True if others had access, to their repositories.
    refused: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
    for name, access in sorted(accesses.items()):
        if access.refused:
            reference = Reference.parse(name)
            key = reference.host, tuple(sorted(access.refused)), bool(access.given)
            refused.setdefault(key, []).append(reference.repository)
    for (host, workers, others_got_it), names in refused.items():
        rest = (
            "others were given it and did the work: give all workers the same credentials"
            if others_got_it
            else "workers take credentials where they run, and not from here"
        )
        who = "the worker" if len(workers) == 1 else "the workers"
        repositories, addresses = listing(names, _MOST_NAMED), listing(workers, _MOST_NAMED)
        yield f"{host} refused {repositories} to {who} {addresses}; {rest}"
