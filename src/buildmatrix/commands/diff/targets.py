"""`diff --targets`: comparison of the targets of one specification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.commands.diff.drift import find_drifts
from buildmatrix.errors import EXIT_FINDINGS, BuildmatrixError, most_severe
from buildmatrix.reports.diff.drift import Drifts
from buildmatrix.rules.acceptance import FailOn
from buildmatrix.sources.resolved import Resolved


def compare_targets(
    outcomes: Sequence[Resolved | BuildmatrixError], catalogue: Sequence[Path] = ()
) -> Drifts:
    """Return distributions with different versions in the targets that could be resolved.

    `catalogue` are the user's own data files for it.
    """
    resolved = [item for item in outcomes if isinstance(item, Resolved)]
    errors = tuple(error.message for error in outcomes if isinstance(error, BuildmatrixError))
    stale = tuple(f"{item.target.id}: {item.stale}" for item in resolved if item.stale)
    return find_drifts(
        [(item.target, item.lock) for item in resolved], load(tuple(catalogue)), errors, stale
    )


def exit_code(
    drifts: Drifts, outcomes: Sequence[Resolved | BuildmatrixError], fail_on: FailOn
) -> int:
    """Return the exit code: drift is a warning; an unresolved target has its error's code."""
    codes = [error.exit_code for error in outcomes if isinstance(error, BuildmatrixError)]
    if fail_on in ("warning", "note") and drifts.drift:
        codes.append(EXIT_FINDINGS)
    return most_severe(codes)
