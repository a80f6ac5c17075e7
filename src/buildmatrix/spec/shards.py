"""One part of the targets, for one machine of a CI matrix: `--shard 2/5`.

Every machine divides for itself, so the answer follows from the arguments alone: the shards of one
matrix have no target in common, and together they have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    def of(self, targets: Sequence[Target], seconds: Mapping[str, float]) -> tuple[Target, ...]:
        """The targets of this shard, in their order.

        `seconds` are those that a target took; where one is not in it, it counts as the median of
        the others. Without any, neighbors stay together: they share bases and locks.
        """
        timed = [seconds[target.id] for target in targets if target.id in seconds]
        if not timed:
            total = len(targets)
            first, end = ((n * total) // self.count for n in (self.number - 1, self.number))
            return tuple(targets[first:end])
        usual = median(timed)
        # Whole numbers: sums of floats depend on their order.
        cost = {t.id: max(1, round(1000 * seconds.get(t.id, usual))) for t in targets}
        shards: list[list[str]] = [[] for _ in range(self.count)]
        loads = [0] * self.count
        # The longest first, each to whoever has least to do (Graham 1969: at most 4/3 of the best).
        for id in sorted(cost, key=lambda id: (-cost[id], id)):
            lightest = loads.index(min(loads))
            shards[lightest].append(id)
            loads[lightest] += cost[id]
        chosen = set(shards[self.number - 1])
        return tuple(target for target in targets if target.id in chosen)
