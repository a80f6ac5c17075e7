"""`buildmatrix why`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.cache import fact_cache, user_cache
from buildmatrix.cli.console import complain
from buildmatrix.cli.options import (
    Settings,
    format_option,
    load,
    option,
    stacked,
)
from buildmatrix.cli.output import write_document
from buildmatrix.cli.surroundings import engine, engine_options
from buildmatrix.cli.wheels import wheel_reader
from buildmatrix.engines.model import Surroundings
from buildmatrix.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.reports.formats import WHY, names

if TYPE_CHECKING:
    from buildmatrix.engines.exports import OpenTree
    from buildmatrix.reports.why.model import Answer
    from buildmatrix.sources.known import Known
    from buildmatrix.spec.model import Spec

index_options = stacked(
    option("--backend", metavar="NAME", help="For `lock:` and its like: which backend is meant."),
    option("--select", metavar="TARGET", help="For `lock:` and its like: which target is meant."),
    option("--deep", is_flag=True, help="For `lock:` and its like: read whole wheels."),
    option("--offline", is_flag=True, help="For `lock:` and its like: use caches only."),
)

_UNREAD_SYMBOLS = "which symbols make links necessary (--symbols exports the image to read them)"

#: Things that one answer tells in full; `--all` tells more.
SUBJECTS, ALL_SUBJECTS = 6, 50
#: Chains to one thing, with `--all`.
CHAINS = 200


@click.command("why", short_help="Tell every chain from a requirement to a library.")
@click.argument("source")
@click.argument("library")
@option("--all", "every", is_flag=True, help="Every chain, not only the shortest.")
@format_option("format_", names(WHY), "dot, mermaid and svg draw the chains.")
@option("-o", "--output", type=click.Path(path_type=Path), help="File; - is stdout.")
@option(
    "--symbols/--no-symbols",
    default=None,
    help="Whether to read which symbols make a link necessary.  [default: where files are at hand]",
)
@option(
    "--layers/--no-layers",
    default=None,
    help="Whether to tell which layer of an engine's image brought it, which exports the image; "
    "of a target only once.  [default: layers]",
)
@option("--lock", type=click.Path(path_type=Path), help="The lock that SOURCE was installed from.")
@index_options
@option("--scanner", metavar="IMAGE", help="Image with a Python 3, in which images are read.")
@option("--no-cache", is_flag=True, help="Read everything again, and remember nothing.")
@engine_options
@click.pass_obj
def command(
    settings: Settings,
    /,
    source: str,
    library: str,
    every: bool,
    format_: str,
    output: Path | None,
    symbols: bool | None,
    layers: bool | None,
    lock: Path | None,
    backend: str | None,
    select: str | None,
    deep: bool,
    offline: bool,
    scanner: str | None,
    no_cache: bool,
    around: Surroundings,
) -> int:
    """Tell why LIBRARY is in SOURCE: who asked for it, who links it, where the loader finds it.

    LIBRARY is a soname, a pattern, a path, a distribution, a vendor or a backend: `libcudart`,
    `libcudart.so.12`, `'nvidia-*'`, `cuda`. SOURCE is what `scan` reads, a target of the
    specification, `lock:FILE` or `report:FILE`. Nothing of it is executed.

    The exit code is 0 also where nothing matches: that is an answer. It is 3 where nothing matches
    and something could not be read.
    """
    from buildmatrix.sources.kinds import is_declared, report_file
    from buildmatrix.sources.known import Machine, known_of
    from buildmatrix.why.joined import from_report, joined, kept_target, why

    if not library.strip():
        raise UsageError("LIBRARY is empty; name a library, a distribution, a path or a backend")
    machine = Machine(
        engine,
        scanner,
        around,
        lambda: fact_cache(no_cache),
        layers=layers is not False,
        again=layers is True,
        data_files=lambda: data_files(settings),
        note=lambda text: note(settings, text),
    )
    it, tree, is_near = None, None, False
    if lock is None and (kept := kept_target(source, settings.file, machine)) is not None:
        it, tree = kept
    elif (report := report_file(source)) is not None:
        it = from_report(report, data_files(settings))
    if it is None:
        known = (
            read_on_index(settings, source, backend, select, offline, deep, no_cache)
            if is_declared(source)
            else known_of(source, machine, lambda: specification(settings), lock)
        )
        it, tree, is_near = joined(known), known.tree, known.is_near
    subjects = ALL_SUBJECTS if every else SUBJECTS
    found = why(it, library, every=every, subjects=subjects, most=CHAINS)
    if any(edge.kind == "needs" for one in found.subjects for edge in one.links):
        found = _with_symbols(found, tree, is_near if symbols is None else symbols, every)
        if tree is not None and symbols is None and not is_near:
            found = replace(found, notes=(*found.notes, _UNREAD_SYMBOLS))
    write_document(WHY, found, [(format_, None)], output)
    return UndecidedError.exit_code if it.unread and not found.subjects else EXIT_OK


def _with_symbols(found: Answer, tree: OpenTree | None, wanted: bool, every: bool) -> Answer:
    if not wanted:
        return found
    if tree is None:
        raise UsageError(
            "--symbols reads whole files, and of this SOURCE only their facts are known; name an "
            "image, a folder, a wheel or a target"
        )
    from buildmatrix.why.uses import with_symbols

    return with_symbols(found, tree, every=every)


def read_on_index(
    settings: Settings,
    source: str,
    backend: str | None,
    select: str | None,
    offline: bool,
    deep: bool,
    no_cache: bool,
) -> Known:
    """What the wheels of a lock, a requirements file or one distribution hold."""
    from buildmatrix.cli.progress import progress
    from buildmatrix.sources.locked import Wish, known_lock

    cache = user_cache(no_cache)
    spec = specification(settings)
    with progress(settings) as display, wheel_reader(offline, cache) as reader:
        wish = Wish(backend, select, None, offline, deep)
        return known_lock(source, spec, wish, reader, display, cache)


def note(settings: Settings, text: str) -> None:
    """Say what takes long."""
    if not settings.quiet:
        complain(text)


def data_files(settings: Settings) -> tuple[Path, ...]:
    """The user's own data files for the catalogue, for a SOURCE that is no target."""
    from buildmatrix.spec.paths import read_data_files

    return read_data_files(settings.file)


def specification(settings: Settings) -> Spec | None:
    """The specification, or None where there is no file of that name."""
    return load(settings) if settings.file.is_file() else None
