"""The parts of the table that only an audit has: totals, and what is open."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.phrases import bounded, size
from buildmatrix.reports.run.model import Report
from buildmatrix.reports.run.table_states import STATES
from buildmatrix.reports.run.wasted import uncertain_words
from buildmatrix.reports.terminal import Painter
from buildmatrix.rules.model import AuditTotals, TargetResult
from buildmatrix.text import printable

_WIDTHS = (9, 9, 10, 9)


def targets(results: Sequence[TargetResult], paint: Painter) -> list[str]:
    """One line per target: its verdict, what it downloads and installs, and what is wasted."""
    width = max(len("target"), *(len(item.id) for item in results))
    names = ("download", "wasted", "installed", "wasted")
    head = [text.rjust(columns) for text, columns in zip(names, _WIDTHS, strict=True)]
    lines = [paint("  ".join(["target".ljust(width), "audit ", *head]), "bold")]
    for result in results:
        text, style = STATES[result.gates.get("lock", "not-run")]
        cells = [printable(result.id).ljust(width), paint(text.ljust(6), style)]
        if result.audit is not None and result.error is None:
            cells += _cells(result.audit)
        lines.append("  ".join(cells).rstrip())
    return lines


def _cells(totals: AuditTotals) -> list[str]:
    texts = (
        size(totals.download),
        bounded(totals.foreign_download, at_least=totals.foreign_at_least),
        size(totals.installed),
        bounded(totals.foreign_installed, at_least=totals.foreign_at_least),
    )
    return [text.rjust(width) for text, width in zip(texts, _WIDTHS, strict=True)]


def not_certain(report: Report) -> str:
    """Return the remark on verdicts that may still change; empty if there are none."""
    return " ".join(f"{text}." for text in uncertain_words(report, str))
