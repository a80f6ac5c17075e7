"""One problem is one finding: what a worse finding about the same distribution says already.

A distribution of another toolkit line is BM103. That two lines are in the lock then (BM109), and
that the other line's build of it owns the same paths (BM204), is the same problem, and goes with
it. Nothing is lost: the finding that stays is open, no milder, and fails for the same `--fail-on`;
whoever accepts it is told the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.rules.model import SEVERITY_RANK, Finding

#: Rules that say of a distribution by its name what others say by its files.
_NAMES = ("BM101", "BM104")
_FILES = ("BM201", "BM203", "BM301", "BM401", "BM501")


def without_repeats(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those that repeat another one of the same target, in their order."""
    them = tuple(findings)
    about: dict[tuple[str, str], list[Finding]] = {}
    for one in them:
        for name in one.distributions:
            about.setdefault((one.target, name), []).append(one)
    return tuple(
        one for one in them if not any(_repeats(one, other) for other in _beside(one, about))
    )


def _beside(one: Finding, about: dict[tuple[str, str], list[Finding]]) -> Iterator[Finding]:
    for name in one.distributions:
        yield from about[one.target, name]


def _repeats(one: Finding, other: Finding) -> bool:
    """Whether `other` says what `one` says, and is no milder and no more accepted."""
    if SEVERITY_RANK[other.severity] < SEVERITY_RANK[one.severity] or other.waived != one.waived:
        return False
    if one.rule == "BM109":
        return other.rule == "BM103"
    if one.rule == "BM204":
        return other.rule == "BM101" or (other.rule == "BM103" and _is_named_for_its_line(other))
    if one.vendor != other.vendor:
        return False
    if one.rule in _FILES:
        # What is another backend's as a whole has its files for that.
        return other.rule == "BM101" and other.severity == "error"
    # What the files show is more exact than what the name lets suspect.
    return (
        one.rule in _NAMES
        and one.severity == "warning"
        and other.rule in _FILES
        and one.fix is not None
        and other.fix is not None
        and one.fix.text == other.fix.text
    )


def _is_named_for_its_line(one: Finding) -> bool:
    """Whether the build for the right line has another name: `nixl-cu12`, not `torch +cu128`."""
    name = one.distribution or ""
    return any(item.toolkit is not None and item.toolkit in name for item in one.evidence)
