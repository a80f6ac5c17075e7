"""Accepted findings (`--waivers`, `--baseline`), and the policy that counts (`--policy`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.errors import UsageError
from buildmatrix.spec.model import Waiver

if TYPE_CHECKING:
    from buildmatrix.api.workspace import Workspace
    from buildmatrix.reports.run.model import Report
    from buildmatrix.spec.model import Spec


def policy_of(text: str | None, workspace: Workspace) -> Spec | None:
    """Load the specification whose policy and waivers count: a file, or ours at a git revision."""
    if text is None:
        return None
    if Path(text).is_file():
        return workspace.load(Path(text))
    from buildmatrix.commands.diff.git_revision import extract_revision

    own = workspace.specification
    with extract_revision(own.absolute().parent, text, (own.name,)) as revision:
        path = revision.folder / own.name
        if not path.is_file():
            raise UsageError(f"--policy {text}: {own.name} does not exist at that revision")
        return workspace.load(path)


def with_policy(spec: Spec, other: Spec | None) -> Spec:
    """`spec` with the policy, the waivers and the accepted checks of `other`, if there is one."""
    if other is None:
        return spec
    checks = {target.id: target.check_waivers for target in other.targets}
    return replace(
        spec,
        policy=other.policy,
        waivers=other.waivers,
        targets=tuple(
            replace(target, check_waivers=checks.get(target.id, ())) for target in spec.targets
        ),
    )


def more_waivers(path: Path | None, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers in a file; `ids` are the targets of the specification, if there is one."""
    if path is None:
        return ()
    from buildmatrix.rules.acceptance import check_waived_rules
    from buildmatrix.spec.policy import load_waivers

    waivers = load_waivers(path, ids)
    check_waived_rules(waivers)
    return waivers


def with_gone(report: Report, path: Path | None) -> Report:
    """The report with what of a baseline is there no more."""
    if path is None:
        return report
    from buildmatrix.reports.run.saved import compared, read

    return compared(report, read(path))


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of the findings in a saved report."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.run.saved import read

    return frozenset(finding.fingerprint for finding in read(path).findings)
