"""Changes that `audit --fix` tries: each in one place, for the findings that it should fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.commands.audit.patches import Draft, snippet
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Finding, Fix, SpecChange, Trial


@dataclass(frozen=True, slots=True)
class Way:
    """One change in one place."""

    #: Number of the SOURCE; None for the specification.
    source: int | None
    #: The backend whose entry changes; empty for a SOURCE, which has one text for all.
    backend: str
    change: SpecChange


@dataclass(slots=True)
class Case:
    """One finding, and the ways to make it go away."""

    target: str
    finding: Finding
    ways: tuple[Way, ...]
    #: Number of the way whose turn it is.
    turn: int = 0

    @property
    def way(self) -> Way:
        """The way whose turn it is."""
        return self.ways[self.turn]


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of trying one change."""

    way: Way
    trial: Mapping[str, Trial]
    #: The findings that it is for: target and fingerprint.
    gone: frozenset[tuple[str, str]] = frozenset()
    #: The change in the files, where it works and a file can say it for all that it touches.
    draft: Draft | None = None
    only: str | None = None


def with_trials(
    report: Report, cases: Sequence[Case], tried_ways: Mapping[Way, Tried]
) -> tuple[Finding, ...]:
    """The findings of a report, with what came of their fixes."""
    fixes: dict[tuple[str, str], Fix] = {}
    for case in cases:
        fix = case.finding.fix
        assert fix is not None
        trials = [
            (way, way.trial[case.target])
            for way in map(tried_ways.get, case.ways)
            if way is not None and case.target in way.trial
        ]
        if not trials:
            continue
        # Where none works, one that could not be tried may still be right.
        order = {True: 0, None: 1, False: 2}
        tried, trial = min(trials, key=lambda pair: order[pair[1].works])
        if tried.way.change != fix.changes[0]:
            fix = _alternative(fix, tried.way.change, case.finding.backend)
        patch = tried.draft.patch if tried.draft is not None else fix.patch
        fixes[case.target, case.finding.fingerprint] = replace(
            fix, tried=trial, patch=patch or fix.patch
        )
    return tuple(
        replace(finding, fix=fixes.get((finding.target, finding.fingerprint), finding.fix))
        for finding in report.findings
    )


def _alternative(fix: Fix, change: SpecChange, backend: str) -> Fix:
    text = snippet(change, backend)
    header, _, line = text.partition("\n")
    return replace(
        fix,
        kind="remove" if change.key == "drop" else fix.kind,
        text=f"write `{line}` under {header}",
        patch=f"{text}\n",
    )


def change_phrase(change: SpecChange) -> str:
    """A change in words."""
    match change.key:
        case "replace":
            return f"{change.value} in place of {change.name}"
        case "drop":
            return f"without {change.name}"
        case "torch":
            return f"torch from uv's `{change.value}`"
        case _:
            return f"{change.name} from source"
