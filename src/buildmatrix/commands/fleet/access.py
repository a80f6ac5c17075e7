"""Which workers a registry gives a repository, and which it refuses: credentials are theirs.

A worker reads them where it runs, so one that was set up in another way may get less than others.
What it was refused is given to another, and the report says which workers lack credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from buildmatrix.phrases import listing
from buildmatrix.registry.reference import Reference

#: Workers that are refused a repository before it is taken for closed to all: to ask on with
#: hundreds of them would look like an attack.
_MOST_REFUSED = 3
_MOST_NAMED = 5


@dataclass(slots=True)
class Access:
    """What workers got of one repository. They are known by their addresses."""

    given: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def note(self, worker: str, *, denied: bool) -> None:
        """Remember how the registry answered a worker, the last time."""
        now, before = (self.refused, self.given) if denied else (self.given, self.refused)
        now[worker] = None
        before.pop(worker, None)

    def may_have_more(self, workers: int) -> bool:
        """Whether another of so many workers may get what one was refused."""
        return bool(self.given) or len(self.refused) < min(workers, _MOST_REFUSED)


def sentences(accesses: Mapping[str, Access]) -> Iterator[str]:
    """What is wrong with the credentials of workers; `accesses` by the names of repositories."""
    #: Registry, workers, and whether others got more → repositories that it is about.
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
