"""`buildmatrix diff`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.cache import fact_cache, user_cache
from buildmatrix.cli.options import (
    Settings,
    formats_option,
    load,
    option,
    selection_options,
)
from buildmatrix.cli.output import check_formats, more_waivers, write_document
from buildmatrix.cli.surroundings import engine, engine_options
from buildmatrix.cli.wheels import wheel_reader
from buildmatrix.engines.model import Surroundings
from buildmatrix.errors import UsageError
from buildmatrix.reports.formats import DIFF, DRIFT, names

if TYPE_CHECKING:
    from buildmatrix.diff.settings import Index
    from buildmatrix.reports.diff.drifts import Drifts
    from buildmatrix.reports.run.model import FailOn
    from buildmatrix.spec.model import Spec

FORMATS = names(DIFF)


@dataclass(frozen=True, slots=True)
class _Online:
    """Options about what is read on the package index."""

    settings: Settings
    offline: bool
    deep: bool
    python: str | None
    no_cache: bool


@click.command("diff", short_help="Tell what changed between two images, wheels, locks, reports.")
@click.argument("sources", nargs=-1, metavar="[BEFORE AFTER]")
@option(
    "--targets",
    "across",
    is_flag=True,
    help="Compare the targets of the specification with each other, in place of two SOURCEs.",
)
@selection_options
@option("--backend", metavar="NAME", help="Judge both for it; images and reports may say so.")
@option("--runtime", metavar="VERSION", help="The backend's line, 12.8 for CUDA.")
@option("--python", metavar="VERSION", help="Of a lock or requirements: for this Python, 3.12.")
@option("--layers", is_flag=True, help="Of an engine's images, compare the layers: exports both.")
@option("--deep", is_flag=True, help="Of locks, read whole wheels.")
@option("--all", "every", is_flag=True, help="List everything, however long.")
@option("--offline", is_flag=True, help="Use caches only.")
@option("--scanner", metavar="IMAGE", help="Image with a Python 3, in which images are read.")
@option("--no-cache", is_flag=True, help="Read everything again, and remember nothing.")
@formats_option(FORMATS)
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default=None,
    help="The least severe new finding that gives exit code 1.  [default: error]",
)
@option("--waivers", type=click.Path(path_type=Path), help="More [[waive]] tables, in a file.")
@engine_options
@click.pass_obj
def command(
    settings: Settings,
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
    scanner: str | None,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn | None,
    waivers: Path | None,
    around: Surroundings,
) -> int:
    """Tell what differs between BEFORE and AFTER, and fail where a finding is new.

    Each is an image, a saved image, a folder, a wheel, a lock, requirements, a target that was
    built, or a saved report: what `scan` and `audit` read, `target:ID` and `report:FILE`. Nothing
    of it is executed.

    With --targets: which distributions differ in version between the targets of the specification,
    or of one SOURCE between backends, without a reason.
    """
    pairs = check_formats(formats, output, FORMATS)
    online = _Online(settings, offline, deep, python, no_cache)
    if across:
        found, code = _drift(online, sources, globs, subset, backend, fail_on or "error")
        write_document(DRIFT, found, pairs, output, every=every)
        return code
    if len(sources) != 2:
        raise UsageError(
            f"diff compares two things, and {len(sources) or 'none'} "
            f"{'is' if len(sources) == 1 else 'are'} named: write `buildmatrix diff BEFORE AFTER`, "
            "or `buildmatrix diff --targets` for the targets of the specification"
        )
    if subset is not None:
        raise UsageError("--subset belongs to --targets; choose targets of a report with --select")
    from datetime import date

    from buildmatrix.cli.why import specification
    from buildmatrix.diff import run as diff
    from buildmatrix.diff.settings import Settings as Reading
    from buildmatrix.diff.source_side import is_wheel, sides_of
    from buildmatrix.sources.known import Machine
    from buildmatrix.spec.paths import read_data_files

    diff.check_kinds(*((source, is_wheel(source)) for source in sources))
    spec = _once(lambda: specification(settings))
    with _index(online) as index:
        reading = Reading(
            Machine(engine, scanner, around, lambda: fact_cache(no_cache), layers),
            spec,
            index,
            backend=backend,
            runtime=runtime,
            globs=globs,
            fail_on=fail_on or "error",
            waivers=more_waivers(waivers, None),
            data_files=read_data_files(settings.file),
            today=date.today(),
        )
        before, after = sides_of(*sources, reading)
    comparison = diff.compared(before, after)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold: that is no success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    write_document(DIFF, comparison, pairs, output, every=every)
    return diff.exit_code(comparison, fail_on or "error")


def _once(load_it: Callable[[], Spec | None]) -> Callable[[], Spec | None]:
    """The same specification for both sides, loaded when the first of them needs it."""
    kept: list[Spec | None] = []

    def get() -> Spec | None:
        if not kept:
            kept.append(load_it())
        return kept[0]

    return get


@contextmanager
def _index(online: _Online) -> Iterator[Callable[[], Index]]:
    """What opens the package index, when the first side needs it; closed at the end."""
    with ExitStack() as stack:
        kept: list[Index] = []

        def opened() -> Index:
            if not kept:
                kept.append(_open(online, stack))
            return kept[0]

        yield opened


def _open(online: _Online, stack: ExitStack) -> Index:
    from buildmatrix.cli.progress import progress
    from buildmatrix.diff.settings import Index

    cache = user_cache(online.no_cache)
    display = stack.enter_context(progress(online.settings))
    reader = stack.enter_context(wheel_reader(online.offline, cache))
    return Index(reader, display, cache, online.offline, online.deep, online.python)


def _drift(
    online: _Online,
    sources: Sequence[str],
    globs: Sequence[str],
    subset: str | None,
    backend: str | None,
    fail_on: FailOn,
) -> tuple[Drifts, int]:
    from buildmatrix.cli.progress import progress
    from buildmatrix.diff.targets import drift, exit_code
    from buildmatrix.sources.resolution.resolved import resolve_sources

    if len(sources) > 1:
        raise UsageError(
            f"diff --targets compares targets with each other: name one SOURCE or none, not "
            f"{len(sources)}"
        )
    settings = online.settings
    spec = load(settings) if not sources or settings.file.is_file() else None
    cache = user_cache(online.no_cache)
    with progress(settings) as display:
        found = resolve_sources(
            sources,
            spec,
            backends=[backend] if backend else [],
            globs=globs,
            subset=subset,
            python=online.python,
            root=spec.root if spec is not None and not sources else Path(),
            cache=cache,
            offline=online.offline,
            progress=display,
        )
    if len(found) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = drift(found, spec.catalogue_files if spec is not None else ())
    return drifts, exit_code(drifts, found, fail_on)
