"""`buildmatrix diff`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.image_options import former_options, platform_option, tables_option
from buildmatrix.cli.machine import data_files, parse, reading_options, specification
from buildmatrix.cli.options import (
    CommandSettings,
    formats_option,
    load,
    option,
    selection_options,
)
from buildmatrix.cli.output import check_formats, more_waivers, write_document
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.errors import UsageError
from buildmatrix.reports.formats import DIFF, DRIFT, names

if TYPE_CHECKING:
    from buildmatrix.reports.diff.drifts import Drifts
    from buildmatrix.reports.run.model import FailOn
    from buildmatrix.sources.model import OnlineIndex

FORMATS = names(DIFF)


@click.command("diff", short_help="Show what changed between two images, wheels, locks, reports.")
@click.argument("sources", nargs=-1, metavar="[BEFORE AFTER]")
@option(
    "--targets",
    "across",
    is_flag=True,
    help="Compare the targets of the specification with each other, instead of two SOURCEs.",
)
@selection_options
@option(
    "--backend",
    metavar="NAME",
    help="Judge both for this backend; by default what images and reports say.",
)
@option("--runtime", metavar="VERSION", help="The backend's version, 12.8 for CUDA.")
@option("--python", metavar="VERSION", help="For a lock or requirements: this Python, 3.12.")
@option("--layers", is_flag=True, help="For targets, compare the layers too; exports their images.")
@option("--deep", is_flag=True, help="For locks, read whole wheels.")
@option("--all", "every", is_flag=True, help="List everything.")
@option("--offline", is_flag=True, help="Use caches only.")
@platform_option
@tables_option
@option("--no-cache", is_flag=True, help="Read everything again, and do not use the cache.")
@formats_option(FORMATS)
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default=None,
    help="The least severe new finding that gives exit code 1.  [default: error]",
)
@option("--waivers", type=click.Path(path_type=Path), help="More [[waive]] tables, in a file.")
@engine_option
@former_options
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    across: bool,
    globs: tuple[str, ...],
    subset: str | None,
    backend: str | None,
    runtime: str | None,
    python: str | None,
    layers: bool,
    deep: bool,
    every: bool,
    offline: bool,
    engine: str,
    platform: str | None,
    tables: bool,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn | None,
    waivers: Path | None,
) -> int:
    """Show what differs between BEFORE and AFTER, and fail where a finding is new.

    Each is an image, a saved image, a folder, a wheel, a lock, requirements, a target that was
    built, or a saved report: what `scan` and `audit` read, `target:ID` and `report:FILE`. Nothing
    of it is executed.

    With --targets: which distributions differ in version between the targets of the specification,
    or of one SOURCE between backends, without a reason.
    """
    pairs = check_formats(formats, output, FORMATS)
    reading_here = reading_options(
        settings,
        engine_name=engine,
        platform=platform,
        tables=tables,
        no_cache=no_cache,
        offline=offline,
        deep=deep,
        python=python,
    )
    if across:
        with reading_here as options:
            drifts, code = _drift(
                settings, options.index, sources, globs, subset, backend, fail_on or "error"
            )
        write_document(DRIFT, drifts, pairs, output, every=every)
        return code
    if len(sources) != 2:
        raise UsageError(
            f"diff compares two things, and {len(sources) or 'none'} "
            f"{'is' if len(sources) == 1 else 'are'} named: write `buildmatrix diff BEFORE AFTER`, "
            "or `buildmatrix diff --targets` for the targets of the specification"
        )
    if subset is not None:
        raise UsageError("--subset belongs to --targets; choose targets of a report with --select")
    from buildmatrix.commands.diff import run as diff
    from buildmatrix.commands.diff.settings import DiffSettings as Reading
    from buildmatrix.commands.diff.source_side import sides_of

    spec = specification(settings)
    first, second = (parse(source, "diff", settings, spec) for source in sources)
    diff.check_kinds((sources[0], first.is_wheel), (sources[1], second.is_wheel))
    with reading_here as usual:
        reading = Reading(
            replace(usual, layers=layers),
            spec,
            backend=backend,
            runtime=runtime,
            globs=globs,
            fail_on=fail_on or "error",
            waivers=more_waivers(waivers, None),
            data_files=data_files(settings),
            today=date.today(),
        )
        before, after = sides_of(first, second, reading)
    comparison = diff.compared(before, after)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold: that is no success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    write_document(DIFF, comparison, pairs, output, every=every)
    return diff.exit_code(comparison, fail_on or "error")


def _drift(
    settings: CommandSettings,
    open_index: Callable[[], OnlineIndex],
    sources: Sequence[str],
    globs: Sequence[str],
    subset: str | None,
    backend: str | None,
    fail_on: FailOn,
) -> tuple[Drifts, int]:
    from buildmatrix.commands.diff.targets import drift, exit_code
    from buildmatrix.sources.resolution.resolved import resolve_sources

    if len(sources) > 1:
        raise UsageError(
            f"diff --targets compares targets with each other: name one SOURCE or none, not "
            f"{len(sources)}"
        )
    spec = load(settings) if not sources or settings.file.is_file() else None
    index = open_index()
    resolved = resolve_sources(
        sources,
        spec,
        backends=[backend] if backend else [],
        globs=globs,
        subset=subset,
        python=index.python,
        root=spec.root if spec is not None and not sources else Path(),
        cache=index.cache,
        offline=index.offline,
        progress=index.progress,
    )
    if len(resolved) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = drift(resolved, spec.catalogue_files if spec is not None else ())
    return drifts, exit_code(drifts, resolved, fail_on)
