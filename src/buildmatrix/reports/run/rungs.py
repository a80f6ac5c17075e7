"""Rungs of images that ran where they were built, and those that did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.phrases import listing
from buildmatrix.reports.run.groups import SharedText, by_text
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import ClimbedRung
from buildmatrix.rules.rungs import RUNGS


def ladders(report: Report) -> tuple[SharedText, ...]:
    """Return the rungs that ran, those that did not, and who has to run them; alike targets
    together.
    """
    return by_text(
        (target.id, "; ".join(_parts(target.rungs))) for target in report.targets if target.rungs
    )


def without_device(report: Report) -> tuple[SharedText, ...]:
    """Smoke commands that were left to machines with the device; alike targets together."""
    return by_text(
        (target.id, f"smoke {', '.join(target.smoke_not_run)}")
        for target in report.targets
        if target.smoke_not_run
    )


def _parts(rungs: Sequence[ClimbedRung]) -> Iterator[str]:
    for state, word in (("passed", "passed"), ("failed", "failed"), ("undecided", "undecided")):
        if alike := [rung for rung in rungs if rung.state == state]:
            why = "; ".join(rung.why for rung in alike if rung.why) if state == "passed" else ""
            yield f"{', '.join(rung.rung for rung in alike)} {word}" + (f" ({why})" if why else "")
    left = [rung for rung in rungs if rung.state == "not-run"]
    # Behind a rung that failed there is nothing to be run until that is mended.
    if left and all(rung.state in ("passed", "not-run") for rung in rungs):
        classes = listing(dict.fromkeys(name for rung in left for name in rung.run_on))
        why = "; ".join(dict.fromkeys(rung.why for rung in left if rung.why))
        yield (
            f"{_span(left)} not run{f' ({why})' if why else ''}, left to `buildmatrix preflight`"
            + (f" on {classes}" if classes else "")
        )


def _span(rungs: Sequence[ClimbedRung]) -> str:
    """`compute to cold-start` where nothing between them is missing, else each by its name."""
    names = [rung.rung for rung in rungs]
    first = RUNGS.index(names[0])
    if len(names) > 2 and tuple(names) == RUNGS[first : first + len(names)]:
        return f"{names[0]} to {names[-1]}"
    return ", ".join(names)
