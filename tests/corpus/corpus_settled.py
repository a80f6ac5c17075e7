"""Differences from the truth that were looked at and settled; see `settled.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from corpus_truth import Facts

FILE = Path(__file__).with_name("settled.toml")


@dataclass(frozen=True, slots=True)
class Settled:
    """One kind of difference, and why it is none of ours."""

    wheel: str
    #: `missed` or `false`.
    how: str
    field: str
    #: A glob for each part of a fact.
    fact: tuple[str, ...]
    why: str

    def covers(self, wheel: str, how: str, field: str, fact: Sequence[str]) -> bool:
        """Whether this difference is the one that was settled."""
        return (
            (self.how, self.field, len(self.fact)) == (how, field, len(fact))
            and fnmatchcase(wheel, self.wheel)
            and all(map(fnmatchcase, fact, self.fact))
        )


def read_settled(path: Path = FILE) -> tuple[Settled, ...]:
    """What a file settles, in its order."""
    entries = tomllib.loads(path.read_text())["settled"]
    return tuple(Settled(**{**one, "fact": tuple(one["fact"])}) for one in entries)


def settled_by(
    known: Sequence[Settled], wheel: str, how: str, field: str, facts: Facts
) -> Iterator[tuple[tuple[str, ...], Settled]]:
    """Those of the differences that were settled, and by which entry."""
    for fact in facts:
        for one in known:
            if one.covers(wheel, how, field, fact):
                yield fact, one
                break
