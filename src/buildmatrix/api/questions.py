"""`diff` and `why`, as functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.judging import more_waivers
from buildmatrix.base.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.commands.workspace import CommandResult, Workspace
from buildmatrix.reports.formats import DIFF, DRIFT, WHY

if TYPE_CHECKING:
    from buildmatrix.engines.model import OpenTree
    from buildmatrix.judge.acceptance import FailOn
    from buildmatrix.reports.diff.drift import Drifts
    from buildmatrix.reports.diff.model import Comparison
    from buildmatrix.reports.why.model import Answer


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    backend: str | None = None,
    runtime: str | None = None,
    python: str | None = None,
    select: Sequence[str] = (),
    layers: bool = False,
    deep: bool = False,
    platform: str | None = None,
    fail_on: FailOn | None = None,
    waivers: Path | None = None,
    workspace: Workspace | None = None,
) -> CommandResult[Comparison]:
    """Show what differs between two sources, and fail where a finding is new.

    Args:
        before: SOURCE, as on the command line: an image, a folder, a lock, a saved report, ...
        after: the other one, of the same kind.
        backend: judge both for this backend; by default what images and reports say.
        runtime: the backend's version, 12.8 for CUDA.
        python: for a lock or requirements: this Python, `3.12`.
        select: targets of a report by identifier.
        layers: for targets, compare the layers too; exports their images.
        deep: for locks, read whole wheels.
        platform: `OS/ARCH`, of images for several platforms.
        fail_on: the least severe new finding that makes the result fail. None is `error` where
            findings can be compared, and nothing where they cannot.
        waivers: a file with more `[[waive]]` tables.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff import compare as command
    from buildmatrix.commands.diff.sides import DiffSettings
    from buildmatrix.commands.diff.sources import read_sides

    workspace = workspace or Workspace()
    spec = workspace.declared()
    first, second = (workspace.parse(source, "diff", spec) for source in (before, after))
    command.check_kinds((os.fspath(before), first.is_wheel), (os.fspath(after), second.is_wheel))
    with workspace.reading(platform=platform, deep=deep, python=python) as usual:
        settings = DiffSettings(
            replace(usual, layers=layers),
            spec,
            backend=backend,
            runtime=runtime,
            globs=tuple(select),
            fail_on=fail_on or "error",
            waivers=more_waivers(waivers, None),
            data_files=workspace.data_files(),
            today=date.today(),
        )
        sides = read_sides(first, second, settings)
    comparison = command.compare_sides(*sides)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold, so this is not a success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    return CommandResult(comparison, command.exit_code(comparison, fail_on or "error"), DIFF)


def drift(
    source: str | os.PathLike[str] | None = None,
    *,
    backend: str | None = None,
    select: Sequence[str] = (),
    subset: str | None = None,
    python: str | None = None,
    fail_on: FailOn = "error",
    workspace: Workspace | None = None,
) -> CommandResult[Drifts]:
    """Show which distributions differ in version between targets without a reason.

    Args:
        source: requirements or a lock, compared between its backends; the targets of the
            specification without it.
        backend: this backend only.
        select: targets by identifier; `!GLOB` excludes.
        subset: a subset that the specification names.
        python: this Python, `3.12`, in place of the target's.
        fail_on: the least severe finding that makes the result fail.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.diff.drift import compare_targets as compared
    from buildmatrix.commands.diff.drift import exit_code
    from buildmatrix.sources.resolved import resolve_sources

    workspace = workspace or Workspace()
    spec = None
    if source is None or workspace.specification.is_file():
        spec = workspace.load()
    with workspace.progress() as display:
        resolved = resolve_sources(
            () if source is None else (os.fspath(source),),
            spec,
            backends=[backend] if backend else [],
            globs=select,
            subset=subset,
            python=python,
            root=spec.root if spec is not None and source is None else Path(),
            cache=workspace.user_cache(),
            offline=workspace.offline,
            progress=display,
        )
    if len(resolved) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = compared(resolved, spec.catalogue_files if spec is not None else ())
    return CommandResult(drifts, exit_code(drifts, resolved, fail_on), DRIFT)


#: Nodes that one answer shows in full; `every` shows more.
SUBJECTS, ALL_SUBJECTS = 6, 50
#: Chains to one thing, with `every`.
CHAINS = 200

_UNREAD_SYMBOLS = "which symbols make links necessary (--symbols exports the image to read them)"


def why(
    source: str | os.PathLike[str],
    library: str,
    *,
    every: bool = False,
    symbols: bool | None = None,
    layers: bool | None = None,
    lock: Path | None = None,
    backend: str | None = None,
    select: str | None = None,
    deep: bool = False,
    platform: str | None = None,
    workspace: Workspace | None = None,
) -> CommandResult[Answer]:
    """Show why a library is in a source: who asked for it, who links it, where the loader finds it.

    Args:
        source: SOURCE, as on the command line: what `scan` reads, a target, `lock:FILE`, ...
        library: a soname, a pattern, a path, a distribution, a vendor or a backend.
        every: every chain, not only the shortest.
        symbols: whether to read which symbols make a link necessary; by default where files are at
            hand.
        layers: whether to say which layer of a target's image brought it; True tries again where an
            earlier answer could not say.
        lock: the lock that the source was installed from.
        backend: which backend is meant where a lock or requirements are the source.
        select: which target is meant there.
        deep: read whole wheels there.
        platform: `OS/ARCH`, of an image for several platforms.
        workspace: this machine and the project; the current folder by default.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.why.run import answer_question, load_graph

    if not library.strip():
        raise UsageError("LIBRARY is empty; name a library, a distribution, a path or a backend")
    workspace = workspace or Workspace()
    spec = workspace.declared()
    parsed = workspace.parse(source, "why", spec)
    with workspace.reading(platform=platform, deep=deep) as usual:
        options = replace(
            usual,
            layers=layers is not False,
            again=layers is True,
            spec=spec,
            lock=lock,
            select=select,
            backend=backend,
        )
        graph = load_graph(parsed, options)
    subjects = ALL_SUBJECTS if every else SUBJECTS
    answer = answer_question(graph, library, every=every, subjects=subjects, most=CHAINS)
    if any(edge.kind == "needs" for subject in answer.subjects for edge in subject.links):
        tree, is_near = parsed.open(options), parsed.is_near
        answer = _with_symbols(answer, tree, is_near if symbols is None else symbols, every)
        if tree is not None and symbols is None and not is_near:
            answer = replace(answer, notes=(*answer.notes, _UNREAD_SYMBOLS))
    is_unknown = bool(graph.unread) and not answer.subjects
    return CommandResult(answer, UndecidedError.exit_code if is_unknown else EXIT_OK, WHY)


def _with_symbols(answer: Answer, tree: OpenTree | None, wanted: bool, every: bool) -> Answer:
    if not wanted:
        return answer
    if tree is None:
        raise UsageError(
            "--symbols reads whole files, and of this SOURCE only their facts are known; name an "
            "image, a folder, a wheel or a target"
        )
    from buildmatrix.commands.why.uses import add_symbols

    return add_symbols(answer, tree, every=every)
