"""A saved report as one side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.sides import find_partial, list_verdict_distributions
from buildmatrix.errors import UsageError
from buildmatrix.reports.run.model import Report, is_undecided
from buildmatrix.reports.run.saved import read
from buildmatrix.rules.model import TargetResult
from buildmatrix.sources.wheel import is_wheel_label
from buildmatrix.spec.matrix import match


def read_report_side(path: Path, globs: Sequence[str], backend: str | None) -> Side:
    """Read a report, for the selected targets.

    A report lacks facts that no rule objected to. Raises `UsageError` for other files, and if no
    target is selected.
    """
    report = read(path)
    targets = _select_targets(path, report, globs, backend)
    ids = {target.id for target in targets}
    others = {target.id for target in report.targets} - ids
    verdicts = tuple(
        verdict
        for verdict in report.distributions
        if not report.targets
        or any(verdict.is_about(target.id, target.backend) for target in targets)
    )
    return Side(
        f"report:{path}",
        "report",
        subject=report.subject,
        targets={target.id: target.backend for target in targets},
        is_wheel=bool(targets) and all(is_wheel_label(result.id) for result in targets),
        held=list_verdict_distributions(verdicts),
        partial=find_partial(verdicts),
        size=_find_size(targets),
        digest=targets[0].digest if len(targets) == 1 else None,
        findings=tuple(finding for finding in report.findings if finding.target not in others),
        verdicts=verdicts,
        unread=report.unread,
        is_undecided=is_undecided(report),
    )


def _select_targets(
    path: Path, report: Report, globs: Sequence[str], backend: str | None
) -> tuple[TargetResult, ...]:
    ids = [target.id for target in report.targets]
    wanted = set(match(globs, ids) if globs else ids)
    targets = tuple(
        target
        for target in report.targets
        if target.id in wanted and backend in (None, target.backend)
    )
    if not targets and report.targets:
        selection = " and ".join(
            [
                *(f"--select {glob}" for glob in globs),
                *([f"--backend {backend}"] if backend else []),
            ]
        )
        raise UsageError(f"report:{path} has no target for {selection}; it has {', '.join(ids)}")
    return targets


def _find_size(targets: Sequence[TargetResult]) -> int | None:
    """Return the bytes of a single image, or of a single lock's installation."""
    if len(targets) != 1:
        return None
    (result,) = targets
    return result.audit.installed if result.audit is not None else result.size
