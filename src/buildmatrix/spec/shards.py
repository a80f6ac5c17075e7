"""One part of the targets, for one machine of a CI matrix: `--shard 2/5`.

Every machine divides for itself, so the answer follows from the arguments alone: the shards of one
matrix have no target in common, and together they have all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from buildmatrix.errors import UsageError
from buildmatrix.spec.model import Target

_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`; the first is 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """As users write it."""
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """What `I/N` says. Raises `UsageError`."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            raise UsageError(
                f"--shard {text} is no part of a whole; write I/N with I from 1 to N: --shard 2/5"
            )
        return shard


def divided(
    targets: Sequence[Target], seconds: Mapping[str, float], count: int
) -> Mapping[str, int]:
    """Target → number of its shard, of `count`.

    `seconds` are those that a target took; where one is not in it, it counts as the median of
    the others. Without any, neighbors stay together: they share bases and locks.
    """
    timed = [seconds[target.id] for target in targets if target.id in seconds]
    if not timed:
        total = len(targets)
        ends = [(number * total) // count for number in range(count + 1)]
        return {
            target.id: number
            for number, (first, end) in enumerate(pairwise(ends), 1)
            for target in targets[first:end]
        }
    usual = median(timed)
    # Whole numbers: sums of floats depend on their order.
    cost = {t.id: max(1, round(1000 * seconds.get(t.id, usual))) for t in targets}
    numbers: dict[str, int] = {}
    loads = [0] * count
    # The longest first, each to the shard with the least to do (Graham 1969: at most 4/3 of the
    # best).
    for id in sorted(cost, key=lambda id: (-cost[id], id)):
        lightest = loads.index(min(loads))
        numbers[id] = lightest + 1
        loads[lightest] += cost[id]
    return numbers


def plan_digest(numbers: Mapping[str, int], count: int) -> str:
    """What is the same on all machines that divide the same targets in the same way."""
    text = json.dumps([count, sorted(numbers.items())])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
