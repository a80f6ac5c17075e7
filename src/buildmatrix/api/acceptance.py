"""What was accepted beforehand: the files of `--waivers` and `--baseline`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.spec.model import Waiver

if TYPE_CHECKING:
    from buildmatrix.reports.run.model import Report


def more_waivers(path: Path | None, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers in a file; `ids` are the targets of the specification, if there is one."""
    if path is None:
        return ()
    from buildmatrix.rules.waivers import check_rules
    from buildmatrix.spec.waivers import load_waivers

    waivers = load_waivers(path, ids)
    check_rules(waivers)
    return waivers


def with_gone(report: Report, path: Path | None) -> Report:
    """The report with what of a baseline is there no more."""
    if path is None:
        return report
    from buildmatrix.reports.run.acceptance import compared
    from buildmatrix.reports.run.saved import read

    return compared(report, read(path))


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of the findings in a saved report."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.run.saved import read

    return frozenset(finding.fingerprint for finding in read(path).findings)
