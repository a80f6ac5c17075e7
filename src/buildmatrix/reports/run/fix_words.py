"""A fix in words: whether it was tried, and what it saves."""

from __future__ import annotations

from buildmatrix.phrases import size
from buildmatrix.reports.diff.words import signed
from buildmatrix.rules.model import Fix, Trial


def fix_text(fix: Fix, *, audited: bool) -> str:
    """A fix with what is known of it: whether it was tried and works, and what it saves."""
    trial = fix.tried
    return advice(fix, audited=audited, saves=saved(trial) if trial and trial.works else "")


def advice(fix: Fix, *, audited: bool, saves: str = "") -> str:
    """The same without what it saves, which differs between targets."""
    trial = fix.tried
    if trial is None:
        state = "fix (not tried)" if audited and fix.changes else "fix"
    elif trial.works is None:
        state = "fix, could not be tried"
    else:
        state = "fix, tried" if trial.works else "tried, and it does not work"
    outcome = trial.outcome if trial is not None else ""
    return "; ".join(part for part in (f"{state}: {fix.text}", saves, outcome) if part)


def saved(trial: Trial) -> str:
    """`saves 352.1 MB to download and 500.0 MB installed`."""
    if trial.saved_download <= 0 and trial.saved_installed <= 0:
        less = signed(-trial.saved_download), signed(-trial.saved_installed)
        return f"it changes {less[0]} to download and {less[1]} installed"
    less = size(max(0, trial.saved_download)), size(max(0, trial.saved_installed))
    return f"it saves {less[0]} to download and {less[1]} installed"
