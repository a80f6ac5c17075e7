"""The parts of the table about fixes that were tried (`audit --fix`)."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.reports.run.fix_words import saved
from buildmatrix.reports.run.model import FixesTried, Report
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.rules.model import Trial
from buildmatrix.text import printable

_LINES: dict[str, Style] = {"+": "green", "-": "red", "@": "blue"}


def fixes(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """The patch, what it saves, and what was not tried."""
    tried = report.fixes
    if tried is None:
        if report.is_audit and any(
            f.fix and f.fix.changes and f.waived is None for f in report.findings
        ):
            yield [
                paint(
                    "`audit --fix --dry-run` tries the fixes, and shows what it would write", "dim"
                )
            ]
        return
    if tried.patch:
        yield [paint(_title(tried), "bold"), *_saved(tried, paint)]
        yield [_painted(line, paint) for line in tried.patch.splitlines()]
    else:
        trials = [f.fix.tried for f in report.findings if f.fix is not None and f.fix.tried]
        if not trials:
            text = "there is none to try"
        elif any(trial.works for trial in trials):
            text = "they work, but there is nothing to write here"
        elif any(trial.works is None for trial in trials):
            open_still = sum(trial.works is None for trial in trials)
            is_all = open_still == len(trials)
            text = (
                "none could be tried"
                if is_all
                else f"none of them works; {open_still} could not be tried"
            )
        else:
            text = "none works"
        yield [paint(f"fixes: {text}", "bold")]
    if tried.notes:
        yield [line for note in tried.notes for line in wrapped(f"- {note}", width, further="  ")]


def _title(tried: FixesTried) -> str:
    names = printable(", ".join(tried.files))
    if tried.written:
        return f"fixed: {names}"
    return f"fixes for {names}; nothing is written, `--fix` without --dry-run does that"


def _saved(tried: FixesTried, paint: Painter) -> Iterator[str]:
    for item in tried.saved:
        text = saved(Trial(True, "", item.download, item.installed))
        yield f"  {printable(item.target)}: {paint(text, 'green')}"


def _painted(line: str, paint: Painter) -> str:
    style = _LINES.get(line[:1])
    return paint(printable(line), style) if style is not None else printable(line)
