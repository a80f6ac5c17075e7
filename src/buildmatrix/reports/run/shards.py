"""Which shards of a matrix a report is made of, and which are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from buildmatrix.errors import UndecidedError
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.run.model import ReportShard


def missing(shards: Collection[ReportShard]) -> tuple[Unread, ...]:
    """The shards whose reports are not there, for each matrix that was divided."""
    divisions: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        divisions.setdefault((shard.plan, shard.count), set()).add(shard.number)
    return tuple(_missing(divisions))


def _missing(divisions: dict[tuple[str, int], set[int]]) -> Iterator[Unread]:
    why = "it is not among these reports"
    if len(divisions) > 1:
        why += (
            ", of which some are of another division of the targets: all machines need the same "
            "specification, selection and --timings"
        )
    for (_, count), numbers in divisions.items():
        # A report may claim a million shards.
        absent = (number for number in range(1, count + 1) if number not in numbers)
        shown = ", ".join(f"{number}/{count}" for number in islice(absent, 10))
        more = sum(1 for _ in absent)
        if shown:
            rest = f" and {more} more" if more else ""
            yield Unread(f"the report of shard {shown}{rest}", why)


def check_once(shards: Collection[ReportShard]) -> None:
    """Raise `UndecidedError` where two reports are about one shard: which of them counts?"""
    for shard, count in Counter(shards).items():
        if count > 1:
            raise UndecidedError(
                f"shard {shard.number}/{shard.count} is in more than one of these reports; leave "
                "out those that do not count"
            )
