"""What could not be judged: never a part of what is clean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.model import FleetResult

#: Of what a sentence differs in from image to image: digests.
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class UndecidedGroup:
    """Images that could not be judged for one reason."""

    #: That of the first of them, in one sentence.
    error: str
    results: tuple[FleetResult, ...]


def undecided(results: Iterable[FleetResult]) -> Sequence[UndecidedGroup]:
    """The reasons, that of most images first."""
    groups: dict[str, list[FleetResult]] = {}
    for result in results:
        if result.state == "undecided":
            groups.setdefault(_DIGEST.sub("", result.error or ""), []).append(result)
    made = (
        UndecidedGroup(group[0].error or "no reason was given", tuple(group))
        for group in groups.values()
    )
    return sorted(made, key=lambda group: (-len(group.results), group.error))
