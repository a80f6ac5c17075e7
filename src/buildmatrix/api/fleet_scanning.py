"""`fleet scan`, as a function."""

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
    check_name,
    checked_store,
    earlier_report,
    need_dask,
)
from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace

if TYPE_CHECKING:
    from buildmatrix.reports.fleet.model import FleetReport
    from buildmatrix.rules.acceptance import FailOn


def fleet_scan(
    *sources: str | os.PathLike[str],
    newest: int = 0,
    exclude: Sequence[str] = (),
    nodes: Sequence[Path] = (),
    backend: str | None = None,
    backend_of: Sequence[str] = (),
    would_run_on: Sequence[str] = (),
    owner_labels: Sequence[str] = (),
    platform: str | None = None,
    workers: int = 0,
    scheduler: str = "",
    store: str = "",
    time_limit: float = 0.0,
    lines: Path | None = None,
    since: Path | None = None,
    fail_on: FailOn = "error",
    strict: bool = False,
    workspace: Workspace | None = None,
) -> CommandResult[FleetReport]:
    """Judge every image of a fleet, each layer once. Nothing of them is executed.

    A script that calls it needs `if __name__ == "__main__":`, since processes are started.

    Args:
        sources: what is in the fleet: `registry:HOST/PREFIX/*`, a file of references, `pods:FILE`.
        newest: images of each repository, the newest first; 0 for all.
        exclude: globs of what is left out.
        nodes: what `kubectl get nodes -o json` wrote, for `pods:`.
        backend: what to judge for where nothing else says it.
        backend_of: `GLOB=BACKEND`, for names of images.
        would_run_on: node classes that every image is held against.
        owner_labels: labels that name an owner, the first that is there.
        platform: `OS/ARCH`, of images for several platforms; that of this machine by default.
        workers: processes of this machine; 0 for one per core.
        scheduler: address of a Dask scheduler in their place.
        store: URL of the store that all workers share; the cache of each machine by default.
        time_limit: seconds for each layer that is read and each image; 0 for an hour.
        lines: a file for JSON Lines as results come; `-` for standard output.
        since: an earlier report as JSON, to say what changed.
        fail_on: the least severe finding that makes the result fail.
        strict: what is undecided fails.
        workspace: this machine and the project; the current folder by default.

    A run that was interrupted, or lost its scheduler, gives what it has, with the exit code for
    that. Raises a `BuildmatrixError` where there is no answer at all.
    """
    need_dask()
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.fleet import work
    from buildmatrix.commands.fleet.judging import parse_pattern
    from buildmatrix.commands.fleet.lookup import AnswerLookup
    from buildmatrix.commands.fleet.model import TIME_LIMIT, ClusterOptions, WorkerSettings
    from buildmatrix.commands.fleet.reference_lists import SubjectSettings
    from buildmatrix.commands.fleet.run import Steps, scan
    from buildmatrix.commands.fleet.running import ResultJournal
    from buildmatrix.commands.fleet.subjects import Lister
    from buildmatrix.sources.images import this_platform

    workspace = workspace or Workspace()
    spec = workspace.declared()()
    data_files = workspace.data_files()
    catalogue = load_catalogue(data_files)
    platform = platform or this_platform()
    patterns = tuple(map(parse_pattern, backend_of))
    earlier = earlier_report(since) if since is not None else None
    store = checked_store(store)
    check_backends(backend, patterns, catalogue.backends)
    with ExitStack() as stack:
        progress = stack.enter_context(workspace.progress())
        lister = Lister(
            SubjectSettings(
                exclude=tuple(exclude),
                newest=newest,
                platform=platform,
                owner_labels=tuple(owner_labels),
                nodes=tuple(map(str, nodes)),
                node_classes=spec.node_classes if spec is not None else (),
            ),
            catalogue,
            lambda: stack.enter_context(workspace.registry()),
            progress,
        )
        listing = lister.find([os.fspath(source) for source in sources])
        classes = [item.name for item in listing.node_classes]
        for name in would_run_on:
            check_name(name, classes, "node class", "node classes")
        journal = stack.enter_context(ResultJournal(lines)) if lines is not None else None
        outcome = scan(
            listing.subjects,
            WorkerSettings(
                store=store,
                platform=platform,
                today=date.today(),
                backend=backend or "",
                patterns=patterns,
                node_classes=listing.node_classes,
                would_run_on=tuple(would_run_on),
                owner_labels=tuple(owner_labels),
                data_files={str(path): path.read_text("utf-8") for path in data_files},
                time_limit=time_limit or TIME_LIMIT,
            ),
            Steps(
                look_up=AnswerLookup,
                resolve=work.resolve,
                resolve_and_judge=work.resolve_and_judge,
                read=work.read_layer,
                judge=work.judge_image,
            ),
            ClusterOptions(workers=workers, scheduler=scheduler),
            progress=progress,
            write=journal.write if journal is not None else lambda _: None,
        )
    return answered(
        sources,
        listing,
        outcome,
        journal,
        catalogue.date,
        earlier,
        workspace,
        would_run_on=would_run_on,
        fail_on=fail_on,
        strict=strict,
    )
