"""Arguments and answer that `fleet_scan` and `fleet_audit` share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace
from buildmatrix.errors import ComponentError, UsageError, most_severe
from buildmatrix.reports.formats import FLEET

if TYPE_CHECKING:
    from buildmatrix.commands.fleet.model import BackendPattern
    from buildmatrix.commands.fleet.reference_lists import SubjectList
    from buildmatrix.commands.fleet.running import ResultJournal, RunOutcome
    from buildmatrix.reports.fleet.model import FleetReport
    from buildmatrix.rules.acceptance import FailOn


def answered(
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
            "fleet needs Dask distributed, which is not installed: pip install 'buildmatrix[fleet]'"
        )


def earlier_report(path: Path) -> FleetReport:
    """An earlier report. Raises `UsageError`."""
    from buildmatrix.reports.fleet.documents import parse
    from buildmatrix.trees.base import reason

    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(
            f"{path} is no report of a fleet ({error}); write one with --format json=FILE"
        ) from error


def checked_store(store: str) -> str:
    """The address of a store as workers are told it. Raises `UsageError` for what is none."""
    from buildmatrix.store.shared import open_storage

    if store:
        # What is wrong with its address is said at once, and workers have other folders.
        open_storage(store)
        store = store if "://" in store or "::" in store else str(Path(store).absolute())
    return store


def check_name(name: str, names: Collection[str], noun: str, plural: str) -> None:
    """Raise `UsageError` for what is none of `names`."""
    from buildmatrix.spec.document import did_you_mean

    if name not in names:
        raise UsageError(f"there is no {noun} {name!r}; {did_you_mean(name, names, plural)}")


def check_backends(
    backend: str | None, patterns: Iterable[BackendPattern], names: Collection[str]
) -> None:
    """Raise `UsageError` where a backend is named that is none of `names`."""
    for name in filter(None, (backend, *(item.backend for item in patterns))):
        check_name(name, names, "backend", "backends")
