"""`why`: everything that is known of a SOURCE, joined into one graph, and a question to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from buildmatrix.engines.exports import OpenTree
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.why.graph import Graph
from buildmatrix.reports.why.model import Answer
from buildmatrix.sources.known import Known, Machine
from buildmatrix.state.folder import FOLDER, State
from buildmatrix.state.target_layers import image_tree
from buildmatrix.why.answer import answer
from buildmatrix.why.graph_cache import Joined, kept, unchanged
from buildmatrix.why.question import ask, vendors

#: Keys of a target's graph: with its layers, and without them.
GRAPH, BARE_GRAPH = "graph", "graph-bare"
#: Identifiers of targets (`spec.matrix`): never a path.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: What could not be read, that an answer names.
MOST_UNREAD = 5


def kept_target(text: str, spec: Path, machine: Machine) -> tuple[Joined, OpenTree] | None:
    """The graph of a target where it is kept and nothing changed; None for whatever else.

    With it comes how the files of its image are opened.

    The specification `spec` is one of the files that it was made from, so it need not be loaded.
    """
    id = text.removeprefix("target:")
    if not _ID.fullmatch(id) or (id == text and Path(text).exists()):
        return None
    files = State(spec.parent / FOLDER).of(id)
    key = GRAPH if machine.layers else BARE_GRAPH
    found = unchanged(files.made(machine.note), key, (files.inventory, spec), Joined)
    if found is None or (machine.again and not found.graph.layers):
        return None
    return found, image_tree(files, machine.engine)


def joined(known: Known) -> Joined:
    """The graph of what is known; for a target that was built the one that is kept, if it fits."""
    keep = known.keep
    if keep is None:
        return _join(known)[0]
    return kept(
        keep.store,
        GRAPH if known.layers else BARE_GRAPH,
        keep.files,
        lambda: _join(known),
        Joined,
        fits=lambda it: not keep.again or bool(it.graph.layers),
    )


def _join(known: Known) -> tuple[Joined, tuple[Path, ...]]:
    """The graph, and the files that were found to be needed for it."""
    from buildmatrix.catalogue.leftovers import apart
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.rules.wheels import resolved
    from buildmatrix.why.join import join

    catalogue = load(known.catalogue)
    facts = known.read()
    parted = apart(facts.inventory, catalogue)
    found = evidence(parted.whole, catalogue)
    graph = join(
        parted.whole,
        resolved(parted.installed),
        found,
        catalogue,
        facts.lock,
        facts.lines,
        known.environment,
    )
    notes = (*graph.notes, *known.notes, *facts.notes, *_unread(facts.inventory.unread))
    unread = facts.inventory.unread
    graph = replace(graph, notes=notes, places=_places(known, graph))
    whole = Joined(known.source, graph, found, vendors(catalogue), unread)
    return whole, (*facts.files, *known.catalogue)


def _places(known: Known, graph: Graph) -> tuple[str, ...]:
    """Where the instructions of the layers stand in the Dockerfile of a target."""
    if known.dockerfile is None or not graph.layers:
        return ()
    from buildmatrix.state.dockerfile_lines import places, read

    name, path = known.dockerfile
    text = read(path)
    if text is None:
        return ()
    return places(text, name, [layer.instruction for layer in graph.layers])


def _unread(unread: Sequence[Unread]) -> Iterator[str]:
    """What could not be read, one sentence each for the first ones."""
    reasons: dict[str, list[str]] = {}
    for item in unread:
        reasons.setdefault(item.path, []).append(item.why)
    for path, whys in list(reasons.items())[:MOST_UNREAD]:
        yield f"{path or 'the source'} could not be read: {'; '.join(dict.fromkeys(whys))}"
    if len(reasons) > MOST_UNREAD:
        yield f"{len(reasons) - MOST_UNREAD} more could not be read"


def from_report(path: Path, data_files: Sequence[Path] = ()) -> Joined:
    """What a saved report says. Raises `UsageError` for a file that is none.

    `data_files` add to the catalogue, which says what a backend or a vendor is called.
    """
    from buildmatrix.catalogue.load import load
    from buildmatrix.reports.run.saved import read
    from buildmatrix.why.saved import from_findings

    report = read(path)
    graph, found = from_findings(report.findings)
    names = ", ".join(target.id for target in report.targets)
    if len(report.targets) > 1:
        note = f"the report is about {names}: what is told is in one of them or more"
        graph = replace(graph, notes=(*graph.notes, note))
    source = f"report:{path} ({report.subject})"
    return Joined(source, graph, found, vendors(load(tuple(data_files))), report.unread)


def why(it: Joined, library: str, *, every: bool, subjects: int, most: int) -> Answer:
    """Everything that `it` says of `library`, without the symbols; see `answer`."""
    question = ask(it.graph, library, it.evidence, it.vendors)
    return answer(it.source, it.graph, question, every=every, subjects=subjects, most=most)
