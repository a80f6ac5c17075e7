"""`diff` and `why`, as functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.judging import more_waivers
from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.commands.options import (
    CommandOptions,
    DiffOptions,
    DriftOptions,
    ImageOptions,
    StrPath,
    argument,
    list_sources,
    option,
)
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports.formats import DIFF, DRIFT, WHY

if TYPE_CHECKING:
    from buildmatrix.reports.diff.drift import Drifts
    from buildmatrix.reports.diff.model import Comparison
    from buildmatrix.reports.why import Answer


def diff(options: DiffOptions) -> CommandResult[Comparison]:
    """Show what differs between two sources, and fail where a finding is new.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff import compare as command
    from buildmatrix.commands.diff.sources import DiffSettings, read_sides

    if options.subset is not None:
        raise UsageError("--subset belongs to --targets; choose targets of a report with --select")
    workspace, fail_on, (before, after) = (
        options.workspace,
        options.fail_on,
        list_sources((options.before, options.after)),
    )
    spec = workspace.declared()
    first, second = (workspace.parse(source, "diff", spec) for source in (before, after))
    command.check_kinds((before, first.is_wheel), (after, second.is_wheel))
    with workspace.reading(
        platform=options.platform, deep=options.deep, python=options.python
    ) as usual:
        settings = DiffSettings(
            options,
            replace(usual, layers=options.layers),
            spec,
            more_waivers(options.waivers, None),
            workspace.data_files(),
            date.today(),
        )
        sides = read_sides(first, second, settings)
    comparison = command.compare_sides(*sides)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold, so this is not a success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    return CommandResult(comparison, command.exit_code(comparison, fail_on or "error"), DIFF)


def drift(options: DriftOptions) -> CommandResult[Drifts]:
    """Show which distributions differ in version between targets without a reason.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff.drift import compare_targets as compared
    from buildmatrix.commands.diff.drift import exit_code
    from buildmatrix.sources.resolved import resolve_sources

    workspace = options.workspace
    sources = list_sources(() if options.source is None else options.source)
    spec = None
    if not sources or workspace.specification.is_file():
        spec = workspace.load()
    with workspace.progress() as display:
        resolved = resolve_sources(
            sources,
            spec,
            backends=[options.backend] if options.backend else [],
            globs=options.select,
            subset=options.subset,
            python=options.python,
            root=spec.root if spec is not None and not sources else Path(),
            cache=workspace.user_cache(),
            offline=workspace.offline,
            progress=display,
        )
    if len(resolved) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = compared(resolved, spec.catalogue_files if spec is not None else ())
    return CommandResult(drifts, exit_code(drifts, resolved, options.fail_on), DRIFT)


#: Nodes that one answer shows in full; `every` shows more.
SUBJECTS, ALL_SUBJECTS = 6, 50
#: Chains to one thing, with `every`.
CHAINS = 200

_UNREAD_SYMBOLS = "which symbols make links necessary (--symbols exports the image to read them)"


@dataclass(frozen=True, kw_only=True)
class WhyOptions(CommandOptions, ImageOptions):
    """Options of `why`."""

    source: StrPath = field(
        kw_only=False,
        metadata=argument("what `scan` reads, a target, `lock:FILE`, ...", completes="sources"),
    )
    library: str = field(
        kw_only=False,
        metadata=argument(
            "a soname, a pattern, a path, a distribution, a vendor or a backend",
            completes="libraries",
        ),
    )
    every: bool = option(False, "Every chain, not only the shortest.", "--all")
    symbols: bool | None = option(
        None,
        "Read the symbols that each link is used for.  [default: if files are at hand]",
        "--symbols/--no-symbols",
    )
    #: True tries again where an earlier answer could not say.
    layers: bool | None = option(
        None,
        "Show the layer of a target's image that brought it; exports the image once.  "
        "[default: layers]",
        "--layers/--no-layers",
    )
    lock: Path | None = option(None, "Lock from which SOURCE was installed.")
    backend: str | None = option(
        None, "For `lock:` and similar sources: the backend.", metavar="NAME"
    )
    select: str | None = option(
        None, "For `lock:` and similar sources: the target.", metavar="TARGET"
    )
    deep: bool = option(False, "For `lock:` and similar sources: read whole wheels.")


def why(options: WhyOptions) -> CommandResult[Answer]:
    """Show why a library is in a source: who asked for it, who links it, where the loader finds it.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.why.run import answer_question, load_graph

    library, every, symbols = options.library, options.every, options.symbols
    if not library.strip():
        raise UsageError("LIBRARY is empty; name a library, a distribution, a path or a backend")
    workspace = options.workspace
    spec = workspace.declared()
    parsed = workspace.parse(options.source, "why", spec)
    with workspace.reading(platform=options.platform, deep=options.deep) as usual:
        reading = replace(
            usual,
            layers=options.layers is not False,
            again=options.layers is True,
            spec=spec,
            lock=options.lock,
            select=options.select,
            backend=options.backend,
        )
        graph = load_graph(parsed, reading)
    subjects = ALL_SUBJECTS if every else SUBJECTS
    answer = answer_question(graph, library, every=every, subjects=subjects, most=CHAINS)
    if any(edge.kind == "needs" for subject in answer.subjects for edge in subject.links):
        tree, is_wanted = parsed.open(reading), parsed.is_near if symbols is None else symbols
        if tree is None and is_wanted:
            raise UsageError(
                "--symbols reads whole files, and of this SOURCE only their facts are known; name "
                "an image, a folder, a wheel or a target"
            )
        if tree is not None and is_wanted:
            from buildmatrix.commands.why.run import add_symbols

            answer = add_symbols(answer, tree, every=every)
        elif tree is not None and symbols is None:
            answer = replace(answer, notes=(*answer.notes, _UNREAD_SYMBOLS))
    is_unknown = bool(graph.unread) and not answer.subjects
    return CommandResult(answer, UndecidedError.exit_code if is_unknown else EXIT_OK, WHY)
