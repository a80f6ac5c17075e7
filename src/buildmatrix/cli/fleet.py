"""`buildmatrix fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import CommandSettings, option, stacked, with_global_options
from buildmatrix.cli.output import check_formats, result_options, write_result
from buildmatrix.cli.workspace import platform_option, workspace
from buildmatrix.reports.formats import FLEET, names

if TYPE_CHECKING:
    from buildmatrix.judge.acceptance import FailOn


FORMATS = names(FLEET)
_STDOUT = Path("-")

_cluster_options = stacked(
    option(
        "--workers",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Processes of this machine that work.  [default: one per core]",
    ),
    option(
        "--scheduler",
        metavar="ADDRESS",
        default="",
        help="A Dask scheduler whose workers work in their place: tcp://HOST:PORT or tls://...",
    ),
    option(
        "--store",
        metavar="URL",
        default="",
        help="What was read, for all workers and later runs: a folder, s3://, gs://, az://.  "
        "[default: the cache of each machine]",
    ),
)
_report_options = stacked(
    option(
        "--since",
        type=click.Path(path_type=Path),
        metavar="REPORT",
        help="An earlier report (--format json), to say what changed.",
    ),
    option(
        "--lines",
        type=click.Path(path_type=Path),
        help="File for each result as it comes, as JSON Lines; - is stdout.",
    ),
    result_options(FORMATS),
    option("--all", "every", is_flag=True, help="List everything, however long."),
)


@click.group("fleet")
def fleet_command() -> None:
    """Judge everything that an organization has, each layer once, on one machine or many."""


@fleet_command.command("scan", short_help="Judge the images of registries, lists and clusters.")
@click.argument(
    "sources", nargs=-1, required=True, metavar="FLEET...", shell_complete=completing.files
)
@option(
    "--newest",
    type=click.IntRange(1),
    metavar="N",
    help="The newest N images of each repository.  [default: all]",
)
@option("--exclude", multiple=True, metavar="GLOB", help="Leave out images by NAME or NAME:TAG.")
@option(
    "--nodes",
    variable="BUILDMATRIX_FLEET_NODES",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `kubectl get nodes -o json` wrote, for pods:.",
)
@option("--backend", metavar="NAME", help="The backend to judge for where nothing else says it.")
@option(
    "--backend-of",
    multiple=True,
    metavar="GLOB=NAME",
    help="The backend of images whose name fits: '*/rocm-*=rocm'.",
)
@option(
    "--would-run-on",
    multiple=True,
    metavar="CLASS",
    shell_complete=completing.node_classes,
    help="A node class that every image is held against.",
)
@option(
    "--owner-label",
    "owner_labels",
    multiple=True,
    metavar="KEY",
    help="A label of images or pods that names their owner.",
)
@option(
    "--time-limit",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="For each layer that is read, and each image; then it is undecided.  [default: 3600]",
)
@platform_option
@_cluster_options
@_report_options
@click.pass_obj
def scan(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    newest: int | None,
    exclude: tuple[str, ...],
    nodes: tuple[Path, ...],
    backend: str | None,
    backend_of: tuple[str, ...],
    would_run_on: tuple[str, ...],
    owner_labels: tuple[str, ...],
    time_limit: int | None,
    platform: str | None,
    workers: int | None,
    scheduler: str,
    store: str,
    since: Path | None,
    lines: Path | None,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    every: bool,
) -> int:
    """Judge every image of a fleet for the backend of its node class, its label or its name.

    FLEET is registry:HOST/NAME[:TAG] with patterns (`registry:HOST/team/*`), a file of references,
    or pods:FILE of `kubectl get pods -A -o json`. Node classes are those of the specification.
    Nothing of an image is executed. What a run has read, the next one does not read again.
    """
    from buildmatrix.api.fleets import fleet_scan

    pairs = _checked(formats, output, lines, workers, scheduler)
    result = fleet_scan(
        *sources,
        newest=newest or 0,
        exclude=exclude,
        nodes=nodes,
        backend=backend,
        backend_of=backend_of,
        would_run_on=would_run_on,
        owner_labels=owner_labels,
        platform=platform,
        time_limit=time_limit or 0,
        workers=workers or 0,
        scheduler=scheduler,
        store=store,
        lines=lines,
        since=since,
        fail_on=fail_on,
        strict=strict,
        workspace=workspace(settings),
    )
    return write_result(result, pairs, output, every=every)


@fleet_command.command("audit", short_help="Judge the locks and requirements of repositories.")
@click.argument(
    "sources", nargs=-1, required=True, metavar="REPOSITORIES...", shell_complete=completing.files
)
@option("--backend", metavar="NAME", help="The backend to judge for where nothing else says it.")
@option(
    "--backend-of",
    multiple=True,
    metavar="GLOB=NAME",
    help="The backend of files whose path fits: '*/rocm/*=rocm'.",
)
@option(
    "--platform",
    metavar="OS/ARCH",
    help="What is installed on.  [default: linux/amd64]",
)
@_cluster_options
@_report_options
@click.pass_obj
def audit(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    backend: str | None,
    backend_of: tuple[str, ...],
    platform: str | None,
    workers: int | None,
    scheduler: str,
    store: str,
    since: Path | None,
    lines: Path | None,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    every: bool,
) -> int:
    """Judge what repositories would install, each at its default branch, before it is installed.

    REPOSITORIES are clones or bare repositories on this machine, folders of them, or a file with
    their paths. Nothing is fetched, checked out or run. Equal files are judged once.
    """
    from buildmatrix.api.fleets import fleet_audit

    pairs = _checked(formats, output, lines, workers, scheduler)
    result = fleet_audit(
        *sources,
        backend=backend,
        backend_of=backend_of,
        platform=platform,
        workers=workers or 0,
        scheduler=scheduler,
        store=store,
        lines=lines,
        since=since,
        fail_on=fail_on,
        strict=strict,
        workspace=workspace(settings),
    )
    return write_result(result, pairs, output, every=every)


def _checked(
    formats: tuple[str, ...],
    output: Path | None,
    lines: Path | None,
    workers: int | None,
    scheduler: str,
) -> tuple[tuple[str, Path | None], ...]:
    """Formats with their files. Raises `UsageError`, also for options that exclude each other."""
    pairs = check_formats(formats, output, FORMATS)
    if workers and scheduler:
        raise UsageError("--workers are of this machine, and --scheduler has its own; drop one")
    return _without_stdout(pairs, formats, output) if lines == _STDOUT else pairs


def _without_stdout(
    pairs: tuple[tuple[str, Path | None], ...], formats: tuple[str, ...], output: Path | None
) -> tuple[tuple[str, Path | None], ...]:
    """Return the requested documents other than lines on standard output."""
    for text in formats:
        if "=" not in text and output in (None, _STDOUT):
            raise UsageError(
                f"--lines - and --format {text} both go to standard output; name a file"
            )
    return tuple(pair for pair in pairs if (pair[1] or output) not in (None, _STDOUT))


for _name, _command in list(fleet_command.commands.items()):
    fleet_command.commands[_name] = with_global_options(_command)
