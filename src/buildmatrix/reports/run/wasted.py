"""What an audit found to be in vain: bytes that nothing on the backend can use, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from buildmatrix.phrases import count, listing, size
from buildmatrix.reports.run.groups import Said, by_text
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Verdict


@dataclass(frozen=True, slots=True)
class Brought:
    """What one requirement line brings into one target in vain."""

    #: `requirements.in:3`, and the distribution that it names.
    line: str
    asker: str
    #: Foreign distributions, and bytes of theirs.
    distributions: int
    download: int
    installed: int
    #: Whether the bytes are a lower bound: not all of those distributions was read.
    at_least: bool = False


def brought(report: Report, target: str) -> tuple[Brought, ...]:
    """What each requirement line brings in vain, the most first.

    A distribution that several lines ask for counts where its chain begins, so the sums add up.
    """
    verdicts = {(one.name, one.version, one.backend): one for one in report.distributions}
    lines: dict[tuple[str, str], dict[str, Verdict]] = {}
    for finding in report.findings:
        known = verdicts.get((finding.distribution or "", finding.version or "", finding.backend))
        if finding.target != target or finding.waived is not None or known is None:
            continue
        if known.verdict == "ok" or not (known.foreign_download or known.foreign_bytes):
            continue
        if finding.chain:
            first, *rest = finding.chain
            asker = rest[0] if rest and ":" in first else first
            lines.setdefault((first, asker), {})[known.name] = known
    found = [
        Brought(
            line,
            asker,
            len(there),
            sum(one.foreign_download or 0 for one in there.values()),
            sum(one.foreign_bytes for one in there.values()),
            any(one.foreign_at_least for one in there.values()),
        )
        for (line, asker), there in lines.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.download, -one.installed, one.line)))


def in_vain(report: Report) -> tuple[Said, ...]:
    """Which requirement line brings what in vain, for which targets."""
    return by_text(
        (
            target.id,
            f"{one.line}{f' {one.asker}' if one.asker != one.line else ''}: "
            f"{'at least ' if one.at_least else ''}{size(one.download)} to download and "
            f"{size(one.installed)} installed in vain, in "
            f"{count(one.distributions, 'distribution')}",
        )
        for target in report.targets
        for one in brought(report, target.id)
    )


def uncertain(report: Report) -> tuple[Verdict, ...]:
    """Verdicts that a deeper look could change, each distribution once."""
    found = {(one.name, one.version): one for one in report.distributions if one.is_open}
    return tuple(found.values())


def uncertain_words(report: Report, shown: Callable[[str], str]) -> Iterator[str]:
    """Which verdicts are open, one sentence per remedy; `shown` escapes a name.

    A scan, and an audit with `--deep`, have read all bytes: what is left there is Python that
    cannot be parsed.
    """
    is_scan = bool(report.targets) and all(one.audit is None for one in report.targets)
    left: dict[bool, list[str]] = {False: [], True: []}
    for one in uncertain(report):
        left[is_scan or one.depth == "whole"].append(shown(f"{one.name} {one.version}"))
    for is_read, what, remedy in (
        (False, "judged by a part of their files", "`audit --deep` reads the rest"),
        (True, "judged without Python files that could not be parsed", "look at those files"),
    ):
        if left[is_read]:
            names = listing(left[is_read], 12)
            yield f"{what}: {names}. That can still change these verdicts; {remedy}"
