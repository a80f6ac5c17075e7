"""What could not be judged: never a part of what is clean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.rules.registry import rule_of

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
            groups.setdefault(_DIGEST.sub("", reason(result)), []).append(result)
    made = (UndecidedGroup(reason(group[0]), tuple(group)) for group in groups.values())
    return sorted(made, key=lambda group: (-len(group.results), group.error))


def reason(result: FleetResult) -> str:
    """Why a result is undecided: as it says itself, else the finding that leaves it open."""
    findings = (
        finding.message
        for finding in result.findings
        if finding.waived is None and rule_of(finding.rule).is_open
    )
    return result.error or next(findings, "not all of it could be read")
