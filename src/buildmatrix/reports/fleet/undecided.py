"""Undecided and skipped parts of a fleet: never counted as clean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.fleet.model import FleetResult
from buildmatrix.rules.registry import rule_of

#: Of what a sentence differs in from image to image: digests.
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reason that several results share."""

    #: As the first of them says it, in one sentence.
    text: str
    results: tuple[FleetResult, ...]


def undecided(results: Iterable[FleetResult]) -> Sequence[ReasonGroup]:
    """Why images could not be judged; the reason of most images first."""
    return _grouped((reason(item), item) for item in results if item.state == "undecided")


def left_out(results: Iterable[FleetResult]) -> Sequence[ReasonGroup]:
    """Extras and groups that were not judged; those that most files have first."""
    return _grouped((item.left_out, item) for item in results if item.left_out)


def _grouped(said: Iterable[tuple[str, FleetResult]]) -> Sequence[ReasonGroup]:
    groups: dict[str, list[tuple[str, FleetResult]]] = {}
    for text, result in said:
        groups.setdefault(_DIGEST.sub("", text), []).append((text, result))
    made = (
        ReasonGroup(group[0][0], tuple(result for _, result in group)) for group in groups.values()
    )
    return sorted(made, key=lambda group: (-len(group.results), group.text))


def reason(result: FleetResult) -> str:
    """Why a result is undecided: as it says itself, else the finding that leaves it open."""
    findings = (
        finding.message
        for finding in result.findings
        if finding.waived is None and rule_of(finding.rule).is_open
    )
    return result.error or next(findings, "not all of it could be read")
