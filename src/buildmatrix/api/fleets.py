"""`fleet scan` and `fleet audit`, as functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UsageError, describe_extra, most_severe
from buildmatrix.commands.options import (
    CommandOptions,
    ImageOptions,
    ReportOptions,
    Sources,
    argument,
    list_sources,
    option,
)
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import FLEET

if TYPE_CHECKING:
    from buildmatrix.catalogue.load import Catalogue
    from buildmatrix.fleet.model import ClusterOptions, WorkerSettings
    from buildmatrix.fleet.reference_lists import SubjectList
    from buildmatrix.fleet.running import ResultJournal, RunOutcome
    from buildmatrix.reports.fleet import FleetReport


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Where the work is done, and what becomes of its results."""

    workers: int | None = option(
        None,
        "Worker processes on this machine.  [default: one per core]",
        least=1,
        most=1000,
        metavar="N",
    )
    scheduler: str = option(
        "",
        "Dask scheduler to use instead of local workers: tcp://HOST:PORT or tls://...",
        metavar="ADDRESS",
    )
    store: str = option(
        "",
        "Store of facts, shared by workers and later runs: a folder, s3://, gs://, az://.  "
        "[default: the cache of each machine]",
        metavar="URL",
    )
    since: Path | None = option(
        None, "An earlier report (--format json) to compare with.", metavar="REPORT"
    )
    lines: Path | None = option(
        None, "File for results as JSON Lines, written as they arrive; - is stdout."
    )


_BACKEND = "Backend to judge for, if nothing else names one."


@dataclass(frozen=True, kw_only=True)
class FleetScanOptions(CommandOptions, ImageOptions, FleetOptions, ReportOptions):
    """Options of `fleet scan`."""

    sources: Sources = field(
        kw_only=False,
        metadata=argument(
            "`registry:HOST/PREFIX/*`, a file of references, `pods:FILE`",
            nargs=-1,
            required=True,
            metavar="FLEET...",
            completes="files",
        ),
    )
    newest: int | None = option(
        None, "The newest N images of each repository.  [default: all]", least=1, metavar="N"
    )
    exclude: Sequence[str] = option((), "Skip images by NAME or NAME:TAG.", metavar="GLOB")
    nodes: Sequence[Path] = option(
        (),
        "Output of `kubectl get nodes -o json`, for pods:.",
        variable="BUILDMATRIX_FLEET_NODES",
        metavar="FILE",
    )
    backend: str | None = option(None, _BACKEND, metavar="NAME")
    backend_of: Sequence[str] = option(
        (), "Backend of images whose name matches: '*/rocm-*=rocm'.", metavar="GLOB=NAME"
    )
    would_run_on: Sequence[str] = option(
        (),
        "Also check every image against this node class.",
        metavar="CLASS",
        completes="node_classes",
    )
    owner_labels: Sequence[str] = option(
        (), "Label of images or pods that names their owner.", "--owner-label", metavar="KEY"
    )
    time_limit: int | None = option(
        None,
        "Time limit per layer and image, which is undecided after that.  [default: 3600]",
        least=1,
        metavar="SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class FleetAuditOptions(CommandOptions, FleetOptions, ReportOptions):
    """Options of `fleet audit`."""

    sources: Sources = field(
        kw_only=False,
        metadata=argument(
            "repositories on this machine, folders of them, or lists of paths (`file:NAME`)",
            nargs=-1,
            required=True,
            metavar="REPOSITORIES...",
            completes="files",
        ),
    )
    backend: str | None = option(None, _BACKEND, metavar="NAME")
    backend_of: Sequence[str] = option(
        (), "Backend of files whose path matches: '*/rocm/*=rocm'.", metavar="GLOB=NAME"
    )
    platform: str | None = option(
        None, "Platform to resolve for.  [default: linux/amd64]", metavar="OS/ARCH"
    )


def _make_result(
    options: FleetScanOptions | FleetAuditOptions,
    plan: _RunPlan,
    listing: SubjectList,
    outcome: RunOutcome,
    journal: ResultJournal | None,
) -> CommandResult[FleetReport]:
    """The report of a run, with its exit code; why it ended early goes to the log."""
    from buildmatrix.reports.fleet_assembly import assemble, exit_code

    troubles = (journal.trouble,) if journal is not None and journal.trouble else ()
    report = assemble(
        ", ".join(list_sources(options.sources)),
        outcome.results,
        plan.catalogue.date,
        would_run_on=plan.settings.would_run_on,
        missing=(*listing.missing, *outcome.missing, *troubles),
        notes=(*listing.notes, *outcome.notes),
        work=outcome.work,
        since=plan.earlier,
    )
    codes = [exit_code(report, options.fail_on, options.strict)]
    if outcome.stopped is not None:
        options.workspace.log("warning", f"buildmatrix: {outcome.stopped.message}")
        codes.append(outcome.stopped.exit_code)
    return CommandResult(report, most_severe(codes), FLEET, Path())


def _earlier_report(path: Path) -> FleetReport:
    """An earlier report. Raises `UsageError`."""
    from buildmatrix.facts.trees.base import reason
    from buildmatrix.reports.fleet_documents import parse

    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(
            f"{path} is not a fleet report ({error}); write one with --format json=FILE"
        ) from error


def _check_name(name: str, names: Collection[str], noun: str, plural: str) -> None:
    """Raise `UsageError` for a name that is not in `names`."""
    from buildmatrix.matrix.document import did_you_mean

    if name not in names:
        raise UsageError(f"there is no {noun} {name!r}; {did_you_mean(name, names, plural)}")


@dataclass(frozen=True, slots=True)
class _RunPlan:
    """Checked options that both commands have."""

    settings: WorkerSettings
    cluster: ClusterOptions
    catalogue: Catalogue
    earlier: FleetReport | None


def _plan_run(options: FleetScanOptions | FleetAuditOptions, platform: str) -> _RunPlan:
    """Check the options. Raises `UsageError`, and `ComponentError` where there is no Dask."""
    if find_spec("distributed") is None:
        raise ComponentError(
            f"fleet needs Dask distributed, which is not installed: {describe_extra('fleet')}"
        )
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.fleet.judging import parse_pattern
    from buildmatrix.fleet.model import ClusterOptions, WorkerSettings

    data_files = options.workspace.data_files()
    catalogue = load_catalogue(data_files)
    patterns = tuple(map(parse_pattern, options.backend_of))
    earlier = _earlier_report(options.since) if options.since is not None else None
    store = options.store
    if store:
        from buildmatrix.images.store.shared import open_storage

        # Report a wrong address at once; workers have other folders.
        open_storage(store)
        store = store if "://" in store or "::" in store else str(Path(store).absolute())
    for name in filter(None, (options.backend, *(item.backend for item in patterns))):
        _check_name(name, catalogue.backends, "backend", "backends")
    settings = WorkerSettings(
        store=store,
        platform=platform,
        today=date.today(),
        backend=options.backend or "",
        patterns=patterns,
        data_files={str(path): path.read_text("utf-8") for path in data_files},
    )
    cluster = ClusterOptions(workers=options.workers or 0, scheduler=options.scheduler)
    return _RunPlan(settings, cluster, catalogue, earlier)


def fleet_scan(options: FleetScanOptions) -> CommandResult[FleetReport]:
    """Judge every image of a fleet, each layer once. Nothing of them is executed.

    A script that calls it needs `if __name__ == "__main__":`, since processes are started.

    A run that was interrupted, or lost its scheduler, gives what it has, with the exit code for
    that. Raises a `BuildmatrixError` where there is no answer at all.
    """
    from buildmatrix.images.documents import this_platform

    plan = _plan_run(options, options.platform or str(this_platform()))
    from buildmatrix.fleet import work
    from buildmatrix.fleet.model import TIME_LIMIT
    from buildmatrix.fleet.reference_lists import SubjectSettings
    from buildmatrix.fleet.run import Steps, scan
    from buildmatrix.fleet.running import ResultJournal
    from buildmatrix.fleet.subjects import Lister
    from buildmatrix.fleet.work import AnswerLookup

    workspace, lines = options.workspace, options.lines
    spec = workspace.declared()()
    with ExitStack() as stack:
        progress = stack.enter_context(workspace.progress())
        lister = Lister(
            SubjectSettings(
                exclude=tuple(options.exclude),
                newest=options.newest or 0,
                platform=plan.settings.platform,
                owner_labels=tuple(options.owner_labels),
                nodes=tuple(map(str, options.nodes)),
                node_classes=spec.node_classes if spec is not None else (),
            ),
            plan.catalogue,
            lambda: stack.enter_context(workspace.registry()),
            progress,
        )
        listing = lister.find(list_sources(options.sources))
        classes = [item.name for item in listing.node_classes]
        for name in options.would_run_on:
            _check_name(name, classes, "node class", "node classes")
        journal = stack.enter_context(ResultJournal(lines)) if lines is not None else None
        settings = replace(
            plan.settings,
            node_classes=listing.node_classes,
            would_run_on=tuple(options.would_run_on),
            owner_labels=tuple(options.owner_labels),
            time_limit=options.time_limit or TIME_LIMIT,
        )
        outcome = scan(
            listing.subjects,
            settings,
            Steps(
                look_up=AnswerLookup,
                resolve=work.resolve,
                resolve_and_judge=work.resolve_and_judge,
                read=work.read_layer,
                judge=work.judge_image,
            ),
            plan.cluster,
            progress=progress,
            write=journal.write if journal is not None else lambda _: None,
        )
    plan = replace(plan, settings=settings)
    return _make_result(options, plan, listing, outcome, journal)


def fleet_audit(options: FleetAuditOptions) -> CommandResult[FleetReport]:
    """Judge the locks and requirements of many repositories, each at its default branch.

    A script that calls it needs `if __name__ == "__main__":`, since processes are started.

    What cannot be read is in the report, as for `fleet_scan`. Raises a `BuildmatrixError` where
    there is no answer at all.
    """
    from buildmatrix.matrix.model import PLATFORM
    from buildmatrix.sources.resolved import check_platform

    plan = _plan_run(options, options.platform or PLATFORM)
    check_platform(options.platform)
    from buildmatrix.fleet.auditing import audit_file, audit_files
    from buildmatrix.fleet.reference_lists import SubjectList
    from buildmatrix.fleet.repositories import find_repositories
    from buildmatrix.fleet.repository_files import plan_audit
    from buildmatrix.fleet.running import ResultJournal

    lines = options.lines
    with ExitStack() as stack:
        progress = stack.enter_context(options.workspace.progress())
        named = find_repositories(list_sources(options.sources))
        planned = plan_audit(named.repositories, plan.settings, plan.catalogue, progress)
        journal = stack.enter_context(ResultJournal(lines)) if lines is not None else None
        outcome = audit_files(
            planned.tasks,
            plan.settings,
            audit_file,
            plan.cluster,
            progress=progress,
            write=journal.write if journal is not None else lambda _: None,
        )
    listing = SubjectList(
        missing=(*named.missing, *planned.missing), notes=(*named.notes, *planned.notes)
    )
    return _make_result(options, plan, listing, outcome, journal)
