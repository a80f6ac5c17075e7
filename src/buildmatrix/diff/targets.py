"""`diff --targets`: what the targets of one specification get, compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.diff.drift import drifts
from buildmatrix.errors import EXIT_FINDINGS, BuildmatrixError, most_severe
from buildmatrix.reports.diff.drifts import Drifts
from buildmatrix.reports.run.model import FailOn
from buildmatrix.sources.resolution.resolved import Resolved


def drift(found: Sequence[Resolved | BuildmatrixError], catalogue: Sequence[Path] = ()) -> Drifts:
    """Which distributions differ in version between the targets that could be resolved.

    `catalogue`: the user's own data files for it.
    """
    resolved = [one for one in found if isinstance(one, Resolved)]
    errors = tuple(one.message for one in found if isinstance(one, BuildmatrixError))
    stale = tuple(f"{one.target.id}: {one.stale}" for one in resolved if one.stale)
    return drifts(
        [(one.target, one.lock) for one in resolved], load(tuple(catalogue)), errors, stale
    )


def exit_code(drifts: Drifts, found: Sequence[Resolved | BuildmatrixError], fail_on: FailOn) -> int:
    """Drift counts as a warning; a target that could not be resolved as its error does."""
    codes = [one.exit_code for one in found if isinstance(one, BuildmatrixError)]
    if fail_on in ("warning", "note") and drifts.drift:
        codes.append(EXIT_FINDINGS)
    return most_severe(codes)
