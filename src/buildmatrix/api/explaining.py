"""`why`, as a function."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.api.result import CommandResult
from buildmatrix.api.workspace import Workspace
from buildmatrix.errors import EXIT_OK, UndecidedError, UsageError
from buildmatrix.reports.formats import WHY

if TYPE_CHECKING:
    from buildmatrix.engines.model import OpenTree
    from buildmatrix.reports.why.model import Answer

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
    from buildmatrix.commands.why.joined import answer_question, load_graph

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
