"""`why`: everything that is known of a SOURCE, joined into one graph, and a question to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from buildmatrix.errors import BuildmatrixError
from buildmatrix.graph.answer import Answer, Subject, Use, answer
from buildmatrix.graph.model import Edge, Graph
from buildmatrix.graph.question import ask, vendors
from buildmatrix.inventory.model import Unread
from buildmatrix.pipeline.graph_cache import Joined, kept, unchanged
from buildmatrix.pipeline.known import Known, OpenTree
from buildmatrix.pipeline.state import FOLDER, State
from buildmatrix.trees.base import Tree, reason

#: Files of a target's state folder that its graph is kept in: with its layers, and without them.
GRAPH, BARE_GRAPH = "graph.msgpack", "graph-bare.msgpack"
#: Identifiers of targets (`spec.matrix`): never a path.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: What could not be read, that an answer names.
MOST_UNREAD = 5
#: Symbols of one link that an answer keeps.
MOST_SYMBOLS = 1000


def kept_target(text: str, spec: Path, *, layers: bool, again: bool) -> Joined | None:
    """The graph of a target where it is kept and nothing changed; None for whatever else.

    The specification `spec` is one of the files that it was made from, so it need not be loaded.
    """
    id = text.removeprefix("target:")
    if not _ID.fullmatch(id) or (id == text and Path(text).exists()):
        return None
    files = State(spec.parent / FOLDER).of(id)
    place = files.folder / (GRAPH if layers else BARE_GRAPH)
    found = unchanged(place, (files.inventory, spec), Joined)
    return None if found is None or (again and not found.graph.layers) else found


def joined(known: Known) -> Joined:
    """The graph of what is known; for a target that was built the one that is kept, if it fits."""
    keep = known.keep
    if keep is None:
        return _join(known)[0]
    place = keep.folder / (GRAPH if known.layers else BARE_GRAPH)
    return kept(
        place,
        keep.files,
        lambda: _join(known),
        Joined,
        fits=lambda it: not keep.again or bool(it.graph.layers),
    )


def _join(known: Known) -> tuple[Joined, tuple[Path, ...]]:
    """The graph, and the files that were found to be needed for it."""
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.match import evidence
    from buildmatrix.graph.join import join
    from buildmatrix.rules.wheels import resolved

    catalogue = load(known.catalogue)
    facts = known.read()
    found = evidence(facts.inventory, catalogue)
    graph = join(
        facts.inventory,
        resolved(facts.inventory),
        found,
        catalogue,
        facts.lock,
        facts.lines,
        known.environment,
    )
    notes = (*graph.notes, *known.notes, *facts.notes, *_unread(facts.inventory.unread))
    unread = facts.inventory.unread
    whole = Joined(known.source, replace(graph, notes=notes), found, vendors(catalogue), unread)
    return whole, (*facts.files, *known.catalogue)


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
    from buildmatrix.graph.saved import from_findings
    from buildmatrix.reports.saved import read

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


# Symbols


def with_symbols(found: Answer, open_tree: OpenTree) -> Answer:
    """`found`, with the symbols that make the last link of each shortest chain necessary.

    What cannot be read is told as such.
    """
    try:
        with open_tree() as tree:
            subjects = tuple(_with_use(found.graph, one, tree) for one in found.subjects)
            return replace(found, subjects=_readable(subjects))
    except (OSError, BuildmatrixError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        note = f"which symbols make links necessary: the files cannot be opened again ({why})"
        return replace(found, notes=(*found.notes, note))


def _readable(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """The symbols of all of them as people write them."""
    from buildmatrix.inspection.demangle import demangled

    names = [name for one in subjects if one.use is not None for name in one.use.symbols]
    readable = dict(zip(names, demangled(names), strict=True))
    return tuple(
        one
        if one.use is None
        else replace(
            one, use=replace(one.use, symbols=tuple(readable[name] for name in one.use.symbols))
        )
        for one in subjects
    )


def _with_use(graph: Graph, subject: Subject, tree: Tree) -> Subject:
    edge = next((chain.edges[-1] for chain in subject.chains if chain.edges), None)
    if edge is None or edge.kind != "needs":
        return subject
    from buildmatrix.elf.headers import Malformed

    binary = graph.nodes[edge.source].label
    try:
        return replace(subject, use=_use(graph, edge, binary, tree))
    except (OSError, Malformed) as error:
        why = reason(error) if isinstance(error, OSError) else error.reason
        return replace(subject, use=Use(binary, edge.text, unread=why))


def _use(graph: Graph, edge: Edge, binary: str, tree: Tree) -> Use:
    """Imported symbols that the library defines; for one that is not there, by their versions."""
    from buildmatrix.elf.symbols import read_symbols

    asking = graph.nodes[edge.source]
    with tree.open(binary) as source:
        imported = read_symbols(source, asking.size)
    offered = None
    library = graph.nodes[edge.target]
    if library.kind == "file":
        with tree.open(library.label) as source:
            offered = read_symbols(source, library.size)
    if imported is None or (library.kind == "file" and offered is None):
        return Use(binary, edge.text, unread="one of the two is no ELF object any more")
    defined = frozenset(offered.defined) if offered is not None else frozenset()
    names = {
        one.name
        for one in imported.undefined
        if one.library == edge.text
        or (one.library is None and offered is not None and one.name in defined)
    }
    if offered is None and not names:
        return Use(
            binary,
            edge.text,
            unread="the library is not there, and its symbols have no versions that name it",
        )
    # Plain names first: they say what is used; mangled ones are long.
    ordered = sorted(names, key=lambda name: (name.startswith(("_Z", "_R")), name))
    return Use(binary, edge.text, tuple(ordered[:MOST_SYMBOLS]), len(ordered))
