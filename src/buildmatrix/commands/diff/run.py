"""`diff`: comparison of two sides, and its exit code."""

from __future__ import annotations

from buildmatrix.commands.diff.compare import compare
from buildmatrix.commands.diff.model import Side
from buildmatrix.errors import EXIT_FINDINGS, UndecidedError, UsageError, most_severe
from buildmatrix.reports.diff.model import Comparison, FindingChange
from buildmatrix.rules.acceptance import FailOn, fails


def compare_sides(before: Side, after: Side) -> Comparison:
    """Compare two sides.

    Raises `UsageError` if they have nothing comparable in common.
    """
    check_kinds((before.source, before.is_wheel), (after.source, after.is_wheel))
    for side, other in ((before, after), (after, before)):
        if len(side.targets) > 1 and (
            len(other.targets) < 2 or not {*side.targets} & {*other.targets}
        ):
            raise UsageError(
                f"{side.source} is about {len(side.targets)} targets ({', '.join(side.targets)}) "
                f"and {other.source} is about {', '.join(other.targets) or 'one tree'}; name the "
                "target to compare with --select"
            )
    return compare(before, after)


def check_kinds(before: tuple[str, bool | None], after: tuple[str, bool | None]) -> None:
    """Raise `UsageError` for one wheel and a set; None stands for unknown until read."""
    if None not in (before[1], after[1]) and before[1] != after[1]:
        wheel, set_ = (before, after) if before[1] else (after, before)
        raise UsageError(
            f"{wheel[0]} is one wheel and {set_[0]} is a set of distributions, so everything would "
            "count as a difference; compare two wheels, or two sets"
        )


def is_new(change: FindingChange, fail_on: FailOn) -> bool:
    """True if a finding fails a run now and did not before."""
    if change.after is None or not fails(change.after, fail_on):
        return False
    return change.before is None or not fails(change.before, fail_on)


def exit_code(comparison: Comparison, fail_on: FailOn) -> int:
    """Return 1 for news in the class of `fail_on`, 3 if something is unknown."""
    codes = []
    if any(is_new(change, fail_on) for change in comparison.finding_changes):
        codes.append(EXIT_FINDINGS)
    if comparison.before.is_undecided or comparison.after.is_undecided:
        codes.append(UndecidedError.exit_code)
    return most_severe(codes)
