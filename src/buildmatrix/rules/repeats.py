"""One problem is one finding: what a worse finding about the same distribution says already.

A distribution of another toolkit line is BM103. That two lines are in the lock then (BM109), and
that the other line's build of it owns the same paths (BM204), is the same problem, and goes with
it. Nothing is lost: the finding that stays is open, no milder, and fails for the same `--fail-on`;
accepting it shows the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from buildmatrix.rules.model import SEVERITY_RANK, Finding

#: Rules that say of a distribution by its name what others say by its files.
_NAMES = ("BM101", "BM104")
#: Rules about the files of single distributions.
FILES = ("BM201", "BM203", "BM301", "BM401", "BM501")


def drop_repeats(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those that repeat another one of the same target, in their order."""
    ordered = tuple(findings)
    about: dict[tuple[str, str], list[Finding]] = {}
    for finding in ordered:
        for name in finding.distributions:
            about.setdefault((finding.target, name), []).append(finding)
    return tuple(
        item
        for item in ordered
        if not any(_is_repeat(item, other) for other in _beside(item, about))
    )


def _beside(finding: Finding, about: dict[tuple[str, str], list[Finding]]) -> Iterator[Finding]:
    for name in finding.distributions:
        yield from about[finding.target, name]


def _is_repeat(finding: Finding, other: Finding) -> bool:
    """Return True if `other` says the same as `finding`, and is no milder and no more accepted."""
    if (
        SEVERITY_RANK[other.severity] < SEVERITY_RANK[finding.severity]
        or other.waived != finding.waived
    ):
        return False
    if finding.rule == "BM109":
        return other.rule == "BM103"
    if finding.rule == "BM204":
        return other.rule == "BM101" or (other.rule == "BM103" and _is_named_for_its_line(other))
    if finding.vendor != other.vendor:
        return False
    if finding.rule in FILES:
        # What is another backend's as a whole has its files for that.
        return other.rule == "BM101" and other.severity == "error"
    # What the files show is more exact than what the name lets suspect.
    return (
        finding.rule in _NAMES
        and finding.severity == "warning"
        and other.rule in FILES
        and finding.fix is not None
        and other.fix is not None
        and finding.fix.text == other.fix.text
    )


def _is_named_for_its_line(finding: Finding) -> bool:
    """Return True if the right line's build has another name: `nixl-cu12`, not `torch +cu128`."""
    name = finding.distribution or ""
    return any(item.toolkit is not None and item.toolkit in name for item in finding.evidence)
