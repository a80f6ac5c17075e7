"""`why`: the graph of a SOURCE, and questions to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from buildmatrix.commands.why.answer import make_answer
from buildmatrix.commands.why.graph_cache import SourceGraph, load_or_make
from buildmatrix.commands.why.question import find_nodes, list_vendor_words
from buildmatrix.inventory.model import Unread
from buildmatrix.reports.why.model import Answer, Graph
from buildmatrix.sources.local import SavedReport
from buildmatrix.sources.model import Facts, ReadingOptions, Source

#: Cache keys of a target's graph: with its layers, and without them.
GRAPH, BARE_GRAPH = "graph", "graph-bare"
#: Unread files named in an answer.
MOST_UNREAD = 5


def load_graph(source: Source, options: ReadingOptions) -> SourceGraph:
    """Return the graph of `source`; for a built target the cached one, if it fits."""
    if isinstance(source, SavedReport):
        return make_report_graph(source.path, options.data_files())
    beside = source.kept_beside(options)
    if beside is None:
        return _join(source, options)[0]
    return load_or_make(
        beside.store,
        GRAPH if options.layers else BARE_GRAPH,
        beside.files,
        lambda: _join(source, options),
        SourceGraph,
        fits=lambda graph: not options.again or bool(graph.graph.layers),
    )


def _join(source: Source, options: ReadingOptions) -> tuple[SourceGraph, tuple[Path, ...]]:
    """Return the graph, and the files that it turned out to need."""
    facts = source.facts(options)
    return make_graph(facts), (*facts.files, *facts.catalogue)


def make_graph(facts: Facts) -> SourceGraph:
    """Return the graph of a source's facts."""
    from buildmatrix.catalogue.leftovers import split_leftovers
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.commands.why.join import join_graph
    from buildmatrix.rules.locks import resolved

    catalogue = load(facts.catalogue)
    parted = split_leftovers(facts.inventory, catalogue)
    items = evidence(parted.whole, catalogue)
    graph = join_graph(
        parted.whole,
        resolved(parted.installed),
        items,
        catalogue,
        facts.lock,
        facts.lines,
        facts.environment,
    )
    unread = facts.inventory.unread
    notes = (*graph.notes, *facts.notes, *_describe_unread(unread))
    graph = replace(graph, notes=notes, places=_find_places(facts, graph))
    return SourceGraph(facts.label, graph, items, list_vendor_words(catalogue), unread)


def _find_places(facts: Facts, graph: Graph) -> tuple[str, ...]:
    """Return where the layers' instructions are in the Dockerfile of a target."""
    if facts.dockerfile is None or not graph.layers:
        return ()
    from buildmatrix.state.dockerfile_lines import locate_layers, read_dockerfile

    name, path = facts.dockerfile
    text = read_dockerfile(path)
    if text is None:
        return ()
    return locate_layers(text, name, [layer.instruction for layer in graph.layers])


def _describe_unread(unread: Sequence[Unread]) -> Iterator[str]:
    """Yield one sentence for each of the first unreadable files."""
    reasons: dict[str, list[str]] = {}
    for item in unread:
        reasons.setdefault(item.path, []).append(item.why)
    for path, whys in list(reasons.items())[:MOST_UNREAD]:
        yield f"{path or 'the source'} could not be read: {'; '.join(dict.fromkeys(whys))}"
    if len(reasons) > MOST_UNREAD:
        yield f"{len(reasons) - MOST_UNREAD} more could not be read"


def make_report_graph(path: Path, data_files: Sequence[Path] = ()) -> SourceGraph:
    """Return the graph of a saved report. Raises `UsageError` for other files.

    `data_files` add to the catalogue, which has the names of backends and vendors.
    """
    from buildmatrix.catalogue.load import load
    from buildmatrix.commands.why.saved import make_findings_graph
    from buildmatrix.reports.run.saved import read

    report = read(path)
    graph, items = make_findings_graph(report.findings)
    names = ", ".join(target.id for target in report.targets)
    if len(report.targets) > 1:
        note = f"the report is about {names}: what is shown is in one of them or more"
        graph = replace(graph, notes=(*graph.notes, note))
    source = f"report:{path} ({report.subject})"
    return SourceGraph(
        source, graph, items, list_vendor_words(load(tuple(data_files))), report.unread
    )


def answer_question(
    source_graph: SourceGraph, library: str, *, every: bool, subjects: int, most: int
) -> Answer:
    """Answer a question about `library` without reading symbols; see `answer`."""
    question = find_nodes(source_graph.graph, library, source_graph.evidence, source_graph.vendors)
    return make_answer(
        source_graph.source, source_graph.graph, question, every=every, subjects=subjects, most=most
    )
