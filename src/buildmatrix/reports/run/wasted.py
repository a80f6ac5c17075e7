"""Wasted bytes of an audit: those nothing on the backend can use, and the lines that bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from buildmatrix.phrases import count, listing, size
from buildmatrix.reports.run.groups import SharedText, by_text
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Verdict


@dataclass(frozen=True, slots=True)
class Brought:
    """Waste that one requirement line brings into one target."""

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
    """Return the waste of each requirement line, the most first.

    A distribution that several lines ask for counts where its chain begins, so the sums add up.
    """
    verdicts = {
        (verdict.name, verdict.version, verdict.backend): verdict
        for verdict in report.distributions
        if verdict.is_about(target, verdict.backend)
    }
    lines: dict[tuple[str, str], dict[str, Verdict]] = {}
    for finding in report.findings:
        verdict = verdicts.get((finding.distribution or "", finding.version or "", finding.backend))
        if finding.target != target or finding.waived is not None or verdict is None:
            continue
        if verdict.verdict == "ok" or not (verdict.foreign_download or verdict.foreign_bytes):
            continue
        if finding.chain:
            first, *rest = finding.chain
            asker = rest[0] if rest and ":" in first else first
            lines.setdefault((first, asker), {})[verdict.name] = verdict
    rows = [
        Brought(
            line,
            asker,
            len(foreign),
            sum(item.foreign_download or 0 for item in foreign.values()),
            sum(item.foreign_bytes for item in foreign.values()),
            any(item.foreign_at_least for item in foreign.values()),
        )
        for (line, asker), foreign in lines.items()
    ]
    return tuple(sorted(rows, key=lambda item: (-item.download, -item.installed, item.line)))


def wasted_texts(report: Report) -> tuple[SharedText, ...]:
    """Which requirement line wastes what, for which targets."""
    return by_text(
        (
            target.id,
            f"{item.line}{f' {item.asker}' if item.asker != item.line else ''}: "
            f"{'at least ' if item.at_least else ''}{size(item.download)} to download and "
            f"{size(item.installed)} installed are wasted, in "
            f"{count(item.distributions, 'distribution')}",
        )
        for target in report.targets
        for item in brought(report, target.id)
    )


def uncertain(report: Report) -> tuple[Verdict, ...]:
    """Verdicts that a deeper look could change, each distribution once."""
    verdicts = {
        (verdict.name, verdict.version): verdict
        for verdict in report.distributions
        if verdict.is_open
    }
    return tuple(verdicts.values())


def uncertain_words(report: Report, shown: Callable[[str], str]) -> Iterator[str]:
    """Which verdicts are open, one sentence per remedy; `shown` escapes a name.

    A scan, and an audit with `--deep`, have read all bytes: what is left there is Python that
    cannot be parsed.
    """
    is_scan = bool(report.targets) and all(target.audit is None for target in report.targets)
    left: dict[bool, list[str]] = {False: [], True: []}
    # What is judged by its source is a finding of its own (BM107).
    for verdict in (item for item in uncertain(report) if is_scan or item.depth is not None):
        left[is_scan or verdict.depth == "whole"].append(shown(f"{verdict.name} {verdict.version}"))
    for is_read, basis, remedy in (
        (False, "judged by part of their files", "`audit --deep` reads the rest"),
        (True, "judged without Python files that could not be parsed", "look at those files"),
    ):
        if left[is_read]:
            names = listing(left[is_read], 12)
            yield f"{basis}: {names}. That can still change these verdicts; {remedy}"
