"""`scan`, as a function."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.acceptance import (
    known_findings,
    more_waivers,
    policy_of,
    with_gone,
    with_policy,
)
from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace
from buildmatrix.errors import UsageError
from buildmatrix.reports.formats import RUN

if TYPE_CHECKING:
    from buildmatrix.reports.run.model import Report
    from buildmatrix.rules.acceptance import FailOn
    from buildmatrix.spec.model import Spec, Target


def scan(
    source: str | os.PathLike[str],
    *,
    backend: str | None = None,
    runtime: str = "any",
    select: str | None = None,
    platform: str | None = None,
    fail_on: FailOn = "error",
    strict: bool = False,
    waivers: Path | None = None,
    baseline: Path | None = None,
    policy: str | None = None,
    workspace: Workspace | None = None,
) -> CommandResult[Report]:
    """Read what lies in an image, a folder or a wheel, and judge it. Nothing of it is executed.

    Args:
        source: SOURCE, as on the command line: `docker:IMAGE`, `registry:IMAGE`, `dir:PATH`, ...
        backend: what to judge for; by default what an image says of itself.
        runtime: the backend's version, 12.8 for CUDA.
        select: a target of the specification, as which it is judged in place of a backend.
        platform: `OS/ARCH`, of an image for several platforms.
        fail_on: the least severe finding that makes the result fail.
        strict: what is undecided fails.
        waivers: a file with more `[[waive]]` tables.
        baseline: an earlier report as JSON, whose findings do not fail.
        policy: another specification, or a git revision of this one, whose policy and waivers
            count; with `select`.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands import scan as command
    from buildmatrix.reports.run.model import exit_code

    workspace = workspace or Workspace()
    declared = None
    if policy is not None and select is None:
        raise UsageError("--policy is for a target of a specification; give --select as well")
    if select is not None:
        spec, target = _declared(workspace, select, backend, runtime)
        declared = with_policy(spec, policy_of(policy, workspace)), target
    parsed = workspace.parse(source, "scan", lambda: None)
    more, fingerprints = more_waivers(waivers, None), known_findings(baseline)
    with workspace.reading(platform=platform) as usual:
        facts = parsed.facts(replace(usual, data_files=tuple))
    own = workspace.data_files()
    report = command.scan(
        facts, backend, runtime, fail_on, date.today(), more, fingerprints, own, declared
    )
    report = with_gone(report, baseline)
    return CommandResult(report, exit_code(report, fail_on, strict), RUN, Path())


def _declared(
    workspace: Workspace, select: str, backend: str | None, runtime: str
) -> tuple[Spec, Target]:
    """The target of the specification that is meant."""
    from buildmatrix.spec.matrix import select as selected

    if backend is not None or runtime != "any":
        raise UsageError("--select says the backend and its version; leave the others out")
    spec = workspace.load()
    targets = selected(spec, [select], None)
    if len(targets) > 1:
        raise UsageError(
            f"--select {select} fits {len(targets)} targets ({targets[0].id}, {targets[1].id}, "
            "...); name one of them"
        )
    return spec, targets[0]
