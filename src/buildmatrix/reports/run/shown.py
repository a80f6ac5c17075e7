"""A report as it may be shown: without secrets, and without what would break a line."""

from __future__ import annotations

from dataclasses import replace

from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import Finding
from buildmatrix.rules.repeats import drop_repeats
from buildmatrix.text import each_text, printable, shown

#: Fields of a report whose texts have lines of their own.
_LINES = frozenset({"error", "patch"})


def whole(report: Report) -> Report:
    """The report for formats that programs read, in which a line break is no line break.

    Whoever reads it again gets what was found, with the findings that repeat another one: they
    count once that is accepted.
    """
    return each_text(report, shown)


def once(report: Report) -> Report:
    """The report for programs that count problems: each once, texts with their line breaks.

    A patch that would write a secret is left out: without it, it writes something else.
    """
    findings = drop_repeats(report.findings)
    return each_text(replace(report, findings=tuple(map(_with_whole_patch, findings))), shown)


def _with_whole_patch(finding: Finding) -> Finding:
    fix = finding.fix
    if fix is None or not fix.patch:
        return finding
    lines = [line for line in fix.patch.split("\n") if line.startswith("+")]
    if all(shown(line) == line for line in lines):
        return finding
    return replace(finding, fix=replace(fix, patch=None))


def by_line(report: Report) -> Report:
    """The report for people: each text on a line of its own, each problem once."""
    single = replace(report, findings=drop_repeats(report.findings))
    return each_text(single, lambda text: printable(shown(text)), lines=_LINES)
