"""Remarks of `lock` and `generate` on base images, since they write no report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from buildmatrix.cli.console import complain
from buildmatrix.errors import EXIT_FINDINGS, EXIT_OK

if TYPE_CHECKING:
    from buildmatrix.spec.model import Spec, Target


def report_bases(spec: Spec, targets: Sequence[Target], *, quiet: bool) -> int:
    """Print what can be pulled as another image tomorrow, each place once; the exit code of it.

    Notes are for reports. Errors are printed even where `quiet` leaves out the rest.
    """
    from buildmatrix.judge import Judge
    from buildmatrix.rules.acceptance import fails

    judge = Judge(spec, "error", date.today())
    lines: dict[str, bool] = {}
    for target in targets:
        for finding in judge.bases(target):
            if finding.severity == "note" or finding.waived is not None:
                continue
            place = finding.chain[0]
            line = f"{place}: {finding.severity} {finding.rule}: {finding.message}"
            lines[line] = fails(finding)
    for line, failed in lines.items():
        if failed or not quiet:
            complain(line)
    return EXIT_FINDINGS if any(lines.values()) else EXIT_OK
