"""What was accepted beforehand: the files of `--waivers` and `--baseline`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from buildmatrix.spec.model import Waiver


def more_waivers(path: Path | None, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers in a file; `ids` are the targets of the specification, if there is one."""
    if path is None:
        return ()
    from buildmatrix.rules.waivers import check_rules
    from buildmatrix.spec.waivers import load_waivers

    waivers = load_waivers(path, ids)
    check_rules(waivers)
    return waivers


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of the findings in a saved report."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.run.saved import read

    return frozenset(finding.fingerprint for finding in read(path).findings)
