"""`why`: everything that is known of a SOURCE, joined into one graph, and a question to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from buildmatrix.commands.why.answer import answer
from buildmatrix.commands.why.graph_cache import SourceGraph, kept
from buildmatrix.commands.why.question import ask, vendors
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.why.graph import Graph
from buildmatrix.reports.why.model import Answer
from buildmatrix.sources.model import Facts, ReadingOptions, Source
from buildmatrix.sources.report import SavedReport

#: Keys of a target's graph: with its layers, and without them.
GRAPH, BARE_GRAPH = "graph", "graph-bare"
#: What could not be read, that an answer names.
MOST_UNREAD = 5


def joined(source: Source, options: ReadingOptions) -> SourceGraph:
    """The graph of `source`; of a target that was built the one that is kept, if it fits."""
    if isinstance(source, SavedReport):
        return from_report(source.path, options.data_files())
    beside = source.kept_beside(options)
    if beside is None:
        return _join(source, options)[0]
    return kept(
        beside.store,
        GRAPH if options.layers else BARE_GRAPH,
        beside.files,
        lambda: _join(source, options),
        SourceGraph,
        fits=lambda graph: not options.again or bool(graph.graph.layers),
    )


def _join(source: Source, options: ReadingOptions) -> tuple[SourceGraph, tuple[Path, ...]]:
    """The graph, and the files that were found to be needed for it."""
    facts = source.facts(options)
    return graph_of(facts), (*facts.files, *facts.catalogue)


def graph_of(facts: Facts) -> SourceGraph:
    """The graph of what was read of a source."""
    from buildmatrix.catalogue.leftovers import apart
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.commands.why.join import join
    from buildmatrix.rules.wheels import resolved

    catalogue = load(facts.catalogue)
    parted = apart(facts.inventory, catalogue)
    items = evidence(parted.whole, catalogue)
    graph = join(
        parted.whole,
        resolved(parted.installed),
        items,
        catalogue,
        facts.lock,
        facts.lines,
        facts.environment,
    )
    unread = facts.inventory.unread
    notes = (*graph.notes, *facts.notes, *_unread(unread))
    graph = replace(graph, notes=notes, places=_places(facts, graph))
    return SourceGraph(facts.label, graph, items, vendors(catalogue), unread)


def _places(facts: Facts, graph: Graph) -> tuple[str, ...]:
    """Where the instructions of the layers stand in the Dockerfile of a target."""
    if facts.dockerfile is None or not graph.layers:
        return ()
    from buildmatrix.state.dockerfile_lines import locate_layers, read_dockerfile

    name, path = facts.dockerfile
    text = read_dockerfile(path)
    if text is None:
        return ()
    return locate_layers(text, name, [layer.instruction for layer in graph.layers])


def _unread(unread: Sequence[Unread]) -> Iterator[str]:
    """What could not be read, one sentence each for the first ones."""
    reasons: dict[str, list[str]] = {}
    for item in unread:
        reasons.setdefault(item.path, []).append(item.why)
    for path, whys in list(reasons.items())[:MOST_UNREAD]:
        yield f"{path or 'the source'} could not be read: {'; '.join(dict.fromkeys(whys))}"
    if len(reasons) > MOST_UNREAD:
        yield f"{len(reasons) - MOST_UNREAD} more could not be read"


def from_report(path: Path, data_files: Sequence[Path] = ()) -> SourceGraph:
    """What a saved report says. Raises `UsageError` for a file that is none.

    `data_files` add to the catalogue, which says what a backend or a vendor is called.
    """
    from buildmatrix.catalogue.load import load
    from buildmatrix.commands.why.saved import from_findings
    from buildmatrix.reports.run.saved import read

    report = read(path)
    graph, items = from_findings(report.findings)
    names = ", ".join(target.id for target in report.targets)
    if len(report.targets) > 1:
        note = f"the report is about {names}: what is shown is in one of them or more"
        graph = replace(graph, notes=(*graph.notes, note))
    source = f"report:{path} ({report.subject})"
    return SourceGraph(source, graph, items, vendors(load(tuple(data_files))), report.unread)


def why(
    source_graph: SourceGraph, library: str, *, every: bool, subjects: int, most: int
) -> Answer:
    """Everything that `source_graph` says of `library`, without the symbols; see `answer`."""
    question = ask(source_graph.graph, library, source_graph.evidence, source_graph.vendors)
    return answer(
        source_graph.source, source_graph.graph, question, every=every, subjects=subjects, most=most
    )
