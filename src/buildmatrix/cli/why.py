"""`buildmatrix why`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.image_options import former_options, platform_option, tables_option
from buildmatrix.cli.machine import parse, reading_options, specification
from buildmatrix.cli.options import (
    CommandSettings,
    format_option,
    option,
    stacked,
)
from buildmatrix.cli.output import write_document
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.reports.formats import WHY, names

if TYPE_CHECKING:
    from buildmatrix.engines.exports import OpenTree
    from buildmatrix.reports.why.model import Answer

index_options = stacked(
    option(
        "--backend", metavar="NAME", help="For `lock:` and similar sources: which backend is meant."
    ),
    option(
        "--select", metavar="TARGET", help="For `lock:` and similar sources: which target is meant."
    ),
    option("--deep", is_flag=True, help="For `lock:` and similar sources: read whole wheels."),
    option("--offline", is_flag=True, help="For `lock:` and similar sources: use caches only."),
)

_UNREAD_SYMBOLS = "which symbols make links necessary (--symbols exports the image to read them)"

#: Nodes that one answer shows in full; `--all` shows more.
SUBJECTS, ALL_SUBJECTS = 6, 50
#: Chains to one thing, with `--all`.
CHAINS = 200


@click.command("why", short_help="Show every chain from a requirement to a library.")
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
    help="Whether to show which layer of a target's image brought it, which exports the image, "
    "once.  [default: layers]",
)
@option("--lock", type=click.Path(path_type=Path), help="The lock that SOURCE was installed from.")
@index_options
@platform_option
@tables_option
@option("--no-cache", is_flag=True, help="Read everything again, and do not use the cache.")
@engine_option
@former_options
@click.pass_obj
def command(
    settings: CommandSettings,
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
    engine: str,
    platform: str | None,
    tables: bool,
    no_cache: bool,
) -> int:
    """Show why LIBRARY is in SOURCE: who asked for it, who links it, where the loader finds it.

    LIBRARY is a soname, a pattern, a path, a distribution, a vendor or a backend: `libcudart`,
    `libcudart.so.12`, `'nvidia-*'`, `cuda`. SOURCE is what `scan` reads, a target of the
    specification, `lock:FILE` or `report:FILE`. Nothing of it is executed.

    The exit code is 0 also where nothing matches: that is an answer. It is 3 where nothing matches
    and something could not be read.
    """
    from buildmatrix.commands.why.joined import joined, why

    if not library.strip():
        raise UsageError("LIBRARY is empty; name a library, a distribution, a path or a backend")
    spec = specification(settings)
    parsed = parse(source, "why", settings, spec)
    with reading_options(
        settings,
        engine_name=engine,
        platform=platform,
        tables=tables,
        no_cache=no_cache,
        offline=offline,
        deep=deep,
    ) as usual:
        options = replace(
            usual,
            layers=layers is not False,
            again=layers is True,
            spec=spec,
            lock=lock,
            select=select,
            backend=backend,
        )
        graph = joined(parsed, options)
    subjects = ALL_SUBJECTS if every else SUBJECTS
    answer = why(graph, library, every=every, subjects=subjects, most=CHAINS)
    if any(edge.kind == "needs" for subject in answer.subjects for edge in subject.links):
        tree, is_near = parsed.open(options), parsed.is_near
        answer = _with_symbols(answer, tree, is_near if symbols is None else symbols, every)
        if tree is not None and symbols is None and not is_near:
            answer = replace(answer, notes=(*answer.notes, _UNREAD_SYMBOLS))
    write_document(WHY, answer, [(format_, None)], output)
    return UndecidedError.exit_code if graph.unread and not answer.subjects else EXIT_OK


def _with_symbols(answer: Answer, tree: OpenTree | None, wanted: bool, every: bool) -> Answer:
    if not wanted:
        return answer
    if tree is None:
        raise UsageError(
            "--symbols reads whole files, and of this SOURCE only their facts are known; name an "
            "image, a folder, a wheel or a target"
        )
    from buildmatrix.commands.why.uses import with_symbols

    return with_symbols(answer, tree, every=every)
