"""`diff`, as functions: two sources, or the targets of one specification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.acceptance import more_waivers
from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace
from buildmatrix.errors import UsageError
from buildmatrix.reports.formats import DIFF, DRIFT

if TYPE_CHECKING:
    from buildmatrix.reports.diff.drift import Drifts
    from buildmatrix.reports.diff.model import Comparison
    from buildmatrix.rules.acceptance import FailOn


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    backend: str | None = None,
    runtime: str | None = None,
    python: str | None = None,
    select: Sequence[str] = (),
    layers: bool = False,
    deep: bool = False,
    platform: str | None = None,
    fail_on: FailOn | None = None,
    waivers: Path | None = None,
    workspace: Workspace | None = None,
) -> CommandResult[Comparison]:
    """Show what differs between two sources, and fail where a finding is new.

    Args:
        before: SOURCE, as on the command line: an image, a folder, a lock, a saved report, ...
        after: the other one, of the same kind.
        backend: judge both for this backend; by default what images and reports say.
        runtime: the backend's version, 12.8 for CUDA.
        python: for a lock or requirements: this Python, `3.12`.
        select: targets of a report by identifier.
        layers: for targets, compare the layers too; exports their images.
        deep: for locks, read whole wheels.
        platform: `OS/ARCH`, of images for several platforms.
        fail_on: the least severe new finding that makes the result fail. None is `error` where
            findings can be compared, and nothing where they cannot.
        waivers: a file with more `[[waive]]` tables.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff import run as command
    from buildmatrix.commands.diff.settings import DiffSettings
    from buildmatrix.commands.diff.source_side import read_sides

    workspace = workspace or Workspace()
    spec = workspace.declared()
    first, second = (workspace.parse(source, "diff", spec) for source in (before, after))
    command.check_kinds((os.fspath(before), first.is_wheel), (os.fspath(after), second.is_wheel))
    with workspace.reading(platform=platform, deep=deep, python=python) as usual:
        settings = DiffSettings(
            replace(usual, layers=layers),
            spec,
            backend=backend,
            runtime=runtime,
            globs=tuple(select),
            fail_on=fail_on or "error",
            waivers=more_waivers(waivers, None),
            data_files=workspace.data_files(),
            today=date.today(),
        )
        sides = read_sides(first, second, settings)
    comparison = command.compare_sides(*sides)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold, so this is not a success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    return CommandResult(comparison, command.exit_code(comparison, fail_on or "error"), DIFF)


def drift(
    source: str | os.PathLike[str] | None = None,
    *,
    backend: str | None = None,
    select: Sequence[str] = (),
    subset: str | None = None,
    python: str | None = None,
    fail_on: FailOn = "error",
    workspace: Workspace | None = None,
) -> CommandResult[Drifts]:
    """Show which distributions differ in version between targets without a reason.

    Args:
        source: requirements or a lock, compared between its backends; the targets of the
            specification without it.
        backend: this backend only.
        select: targets by identifier; `!GLOB` excludes.
        subset: a subset that the specification names.
        python: this Python, `3.12`, in place of the target's.
        fail_on: the least severe finding that makes the result fail.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff.targets import compare_targets as compared
    from buildmatrix.commands.diff.targets import exit_code
    from buildmatrix.sources.resolved import resolve_sources

    workspace = workspace or Workspace()
    spec = None
    if source is None or workspace.specification.is_file():
        spec = workspace.load()
    with workspace.progress() as display:
        resolved = resolve_sources(
            () if source is None else (os.fspath(source),),
            spec,
            backends=[backend] if backend else [],
            globs=select,
            subset=subset,
            python=python,
            root=spec.root if spec is not None and source is None else Path(),
            cache=workspace.user_cache(),
            offline=workspace.offline,
            progress=display,
        )
    if len(resolved) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = compared(resolved, spec.catalogue_files if spec is not None else ())
    return CommandResult(drifts, exit_code(drifts, resolved, fail_on), DRIFT)
