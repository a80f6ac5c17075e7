"""`fleet scan` and `fleet audit`, as functions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.errors import ComponentError, UsageError, describe_extra, most_severe
from buildmatrix.commands.workspace import CommandResult, Workspace
from buildmatrix.reports.formats import FLEET

if TYPE_CHECKING:
    from buildmatrix.fleet.model import BackendPattern
    from buildmatrix.fleet.reference_lists import SubjectList
    from buildmatrix.fleet.running import ResultJournal, RunOutcome
    from buildmatrix.judge.acceptance import FailOn
    from buildmatrix.reports.fleet.model import FleetReport


def make_result(
    sources: Sequence[str | os.PathLike[str]],
    listing: SubjectList,
    outcome: RunOutcome,
    journal: ResultJournal | None,
    catalogue: str,
    earlier: FleetReport | None,
    workspace: Workspace,
    *,
    would_run_on: Sequence[str] = (),
    fail_on: FailOn,
    strict: bool,
) -> CommandResult[FleetReport]:
    """The report of a run, with its exit code; why it ended early goes to the log."""
    from buildmatrix.reports.fleet.assembly import assemble, exit_code

    troubles = (journal.trouble,) if journal is not None and journal.trouble else ()
    report = assemble(
        ", ".join(os.fspath(source) for source in sources),
        outcome.results,
        catalogue,
        would_run_on=would_run_on,
        missing=(*listing.missing, *outcome.missing, *troubles),
        notes=(*listing.notes, *outcome.notes),
        work=outcome.work,
        since=earlier,
    )
    codes = [exit_code(report, fail_on, strict)]
    if outcome.stopped is not None:
        workspace.log("warning", f"buildmatrix: {outcome.stopped.message}")
        codes.append(outcome.stopped.exit_code)
    return CommandResult(report, most_severe(codes), FLEET, Path())


def need_dask() -> None:
    """Raise `ComponentError` where there is no Dask."""
    if find_spec("distributed") is None:
        raise ComponentError(
            f"fleet needs Dask distributed, which is not installed: {describe_extra('fleet')}"
        )


def earlier_report(path: Path) -> FleetReport:
    """An earlier report. Raises `UsageError`."""
    from buildmatrix.facts.trees.base import reason
    from buildmatrix.reports.fleet.documents import parse

    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(
            f"{path} is not a fleet report ({error}); write one with --format json=FILE"
        ) from error


def check_store(store: str) -> str:
    """Return the address of a store for workers. Raises `UsageError` for an invalid one."""
    from buildmatrix.images.store.shared import open_storage

    if store:
        # Report a wrong address at once; workers have other folders.
        open_storage(store)
        store = store if "://" in store or "::" in store else str(Path(store).absolute())
    return store


def check_name(name: str, names: Collection[str], noun: str, plural: str) -> None:
    """Raise `UsageError` for a name that is not in `names`."""
    from buildmatrix.matrix.document import did_you_mean

    if name not in names:
        raise UsageError(f"there is no {noun} {name!r}; {did_you_mean(name, names, plural)}")


def check_backends(
    backend: str | None, patterns: Iterable[BackendPattern], names: Collection[str]
) -> None:
    """Raise `UsageError` where a backend is named that is none of `names`."""
    for name in filter(None, (backend, *(item.backend for item in patterns))):
        check_name(name, names, "backend", "backends")


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
    from buildmatrix.fleet import work
    from buildmatrix.fleet.judging import parse_pattern
    from buildmatrix.fleet.lookup import AnswerLookup
    from buildmatrix.fleet.model import TIME_LIMIT, ClusterOptions, WorkerSettings
    from buildmatrix.fleet.reference_lists import SubjectSettings
    from buildmatrix.fleet.run import Steps, scan
    from buildmatrix.fleet.running import ResultJournal
    from buildmatrix.fleet.subjects import Lister
    from buildmatrix.images.oci.documents import this_platform

    workspace = workspace or Workspace()
    spec = workspace.declared()()
    data_files = workspace.data_files()
    catalogue = load_catalogue(data_files)
    platform = platform or str(this_platform())
    patterns = tuple(map(parse_pattern, backend_of))
    earlier = earlier_report(since) if since is not None else None
    store = check_store(store)
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
    return make_result(
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
    from buildmatrix.fleet.auditing import audit_file, audit_files
    from buildmatrix.fleet.judging import parse_pattern
    from buildmatrix.fleet.model import ClusterOptions, WorkerSettings
    from buildmatrix.fleet.reference_lists import SubjectList
    from buildmatrix.fleet.repositories import find_repositories
    from buildmatrix.fleet.repository_files import plan_audit
    from buildmatrix.fleet.running import ResultJournal
    from buildmatrix.matrix.model import PLATFORM
    from buildmatrix.sources.points import check_platform

    workspace = workspace or Workspace()
    data_files = workspace.data_files()
    catalogue = load_catalogue(data_files)
    patterns = tuple(map(parse_pattern, backend_of))
    check_platform(platform)
    earlier = earlier_report(since) if since is not None else None
    check_backends(backend, patterns, catalogue.backends)
    settings = WorkerSettings(
        store=check_store(store),
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
    return make_result(
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
