"""A fix in words: whether it was tried, and what it saves."""

from __future__ import annotations

from buildmatrix.reports.comparison_words import signed
from buildmatrix.rules.model import Fix, Trial
from buildmatrix.rules.text import size


def fix_text(fix: Fix, *, audited: bool) -> str:
    """A fix with what is known of it: tried, tried in vain, or not tried."""
    trial = fix.tried
    if trial is None:
        return f"fix (not tried): {fix.text}" if audited and fix.changes else f"fix: {fix.text}"
    if trial.works is None:
        return f"fix, could not be tried: {fix.text}; {trial.outcome}"
    if not trial.works:
        return f"tried, and no fix: {fix.text}; {trial.outcome}"
    return f"fix, tried: {fix.text}; {saved(trial)}" + (
        f"; {trial.outcome}" if trial.outcome else ""
    )


def saved(trial: Trial) -> str:
    """`saves 352.1 MB to download and 500.0 MB installed`."""
    if trial.saved_download <= 0 and trial.saved_installed <= 0:
        less = signed(-trial.saved_download), signed(-trial.saved_installed)
        return f"it changes {less[0]} to download and {less[1]} installed"
    less = size(max(0, trial.saved_download)), size(max(0, trial.saved_installed))
    return f"it saves {less[0]} to download and {less[1]} installed"
