"""`fleet audit`, as a function."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.fleets import (
    answered,
    check_backends,
    checked_store,
    earlier_report,
    need_dask,
)
from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace

if TYPE_CHECKING:
    from buildmatrix.reports.fleet.model import FleetReport
    from buildmatrix.rules.acceptance import FailOn


def fleet_audit(
    *sources: str | os.PathLike[str],
    backend: str | None = None,
    backend_of: Sequence[str] = (),
    platform: str | None = None,
    workers: int = 0,
    scheduler: str = "",
    store: str = "",
    lines: Path | None = None,
    since: Path | None = None,
    fail_on: FailOn = "error",
    strict: bool = False,
    workspace: Workspace | None = None,
) -> CommandResult[FleetReport]:
    """Judge the locks and requirements of many repositories, each at its default branch.

    A script that calls it needs `if __name__ == "__main__":`, since processes are started.

    Args:
        sources: repositories on this machine, folders of them, or lists of paths (`file:NAME`).
        backend: what to judge for where nothing else says it.
        backend_of: `GLOB=BACKEND`, for `PATH` or `REPOSITORY/PATH`.
        platform: `linux/arm64`; linux/amd64 by default. A specification names its own.
        workers: see `fleet_scan`.
        scheduler: see `fleet_scan`.
        store: see `fleet_scan`.
        lines: see `fleet_scan`.
        since: see `fleet_scan`.
        fail_on: see `fleet_scan`.
        strict: see `fleet_scan`.
        workspace: this machine and the project; the current folder by default.

    What cannot be read is in the report, as for `fleet_scan`. Raises a `BuildmatrixError` where
    there is no answer at all.
    """
    need_dask()
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.fleet.auditing import audit_file, audit_files
    from buildmatrix.commands.fleet.judging import parse_pattern
    from buildmatrix.commands.fleet.model import ClusterOptions, WorkerSettings
    from buildmatrix.commands.fleet.reference_lists import SubjectList
    from buildmatrix.commands.fleet.repositories import find_repositories
    from buildmatrix.commands.fleet.repository_files import plan_audit
    from buildmatrix.commands.fleet.running import ResultJournal
    from buildmatrix.sources.points import check_platform
    from buildmatrix.spec.model import PLATFORM

    workspace = workspace or Workspace()
    data_files = workspace.data_files()
    catalogue = load_catalogue(data_files)
    patterns = tuple(map(parse_pattern, backend_of))
    check_platform(platform)
    earlier = earlier_report(since) if since is not None else None
    check_backends(backend, patterns, catalogue.backends)
    settings = WorkerSettings(
        store=checked_store(store),
        platform=platform or PLATFORM,
        today=date.today(),
        backend=backend or "",
        patterns=patterns,
        data_files={str(path): path.read_text("utf-8") for path in data_files},
    )
    with ExitStack() as stack:
        progress = stack.enter_context(workspace.progress())
        named = find_repositories([os.fspath(source) for source in sources])
        planned = plan_audit(named.repositories, settings, catalogue, progress)
        journal = stack.enter_context(ResultJournal(lines)) if lines is not None else None
        outcome = audit_files(
            planned.tasks,
            settings,
            audit_file,
            ClusterOptions(workers=workers, scheduler=scheduler),
            progress=progress,
            write=journal.write if journal is not None else lambda _: None,
        )
    listing = SubjectList(
        missing=(*named.missing, *planned.missing), notes=(*named.notes, *planned.notes)
    )
    return answered(
        sources,
        listing,
        outcome,
        journal,
        catalogue.date,
        earlier,
        workspace,
        fail_on=fail_on,
        strict=strict,
    )
