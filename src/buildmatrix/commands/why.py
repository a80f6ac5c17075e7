"""`why`: the graph of a SOURCE, which is cached, and questions to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why_answer import Vendors, find_nodes, list_vendor_words, make_answer
from buildmatrix.engines.model import OpenTree
from buildmatrix.facts.elf.headers import Malformed
from buildmatrix.facts.elf.model import Symbols
from buildmatrix.facts.elf.symbols import read_symbols
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.facts.trees.base import Tree, reason
from buildmatrix.images.store.cache import Store
from buildmatrix.reports.why import Answer, AnsweredNode, Edge, Graph, Use
from buildmatrix.sources.local import SavedReport
from buildmatrix.sources.model import Facts, ReadingOptions, Source

# Cache beside a target's inventory, also used by `diff`.
#
# An entry holds the stamps (device, inode, size, mtime, ctime) of all files that it was made from,
# including those of the catalogue. If one differs, the entry is remade.


T = TypeVar("T")
Stamp = tuple[str, int, int, int, int, int]


class SourceGraph(Struct, frozen=True):
    """A source as a graph, with its evidence."""

    source: str
    graph: Graph
    evidence: tuple[Evidence, ...]
    vendors: Vendors
    unread: tuple[Unread, ...] = ()


class _StampedEntry(Struct, frozen=True):
    stamps: tuple[Stamp | None, ...]
    #: All files that it was made from.
    files: tuple[str, ...]
    #: The encoded value.
    made: msgspec.Raw


_ENTRY = msgspec.msgpack.Decoder(prepare_type(_StampedEntry))


def load_or_make(
    store: Store,
    key: str,
    files: Iterable[Path],
    make: Callable[[], tuple[T, Iterable[Path]]],
    kind: type[T],
    *,
    fits: Callable[[T], bool] = lambda _: True,
) -> T:
    """Return the cached value of a `kind`, or the result of `make`, which is then cached.

    `files` are the known files that it is made from; `make` returns the others. A value refused by
    `fits` is remade.
    """
    before = tuple(files)
    present = load_unchanged(store, key, before, kind)
    if present is not None and fits(present):
        return present
    made, further = make()
    names = tuple(dict.fromkeys(map(str, (*before, *further))))
    with suppress(UnicodeEncodeError):
        store.save(
            key,
            _StampedEntry(_take_stamps(names), names, msgspec.Raw(msgspec.msgpack.encode(made))),
        )
    return made


def load_unchanged(store: Store, key: str, files: Iterable[Path], kind: type[T]) -> T | None:
    """Return the cached value of a `kind`, if made from `files` and no file has changed."""
    entry = store.load(key, _ENTRY)
    if entry is None or not {str(path) for path in files} <= set(entry.files):
        return None
    if entry.stamps != _take_stamps(entry.files):
        return None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.msgpack.decode(entry.made, type=prepare_type(kind))
    return None


def _take_stamps(files: Iterable[str]) -> tuple[Stamp | None, ...]:
    return tuple(_take_stamp(path) for path in files)


def _take_stamp(path: str) -> Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    return path, status.st_dev, status.st_ino, status.st_size, *times


# Graph and questions


#: Cache keys of a target's graph: with its layers, and without them.
GRAPH, BARE_GRAPH = "graph", "graph-bare"
#: Unread files named in an answer.
MOST_UNREAD = 5


def load_graph(source: Source, options: ReadingOptions) -> SourceGraph:
    """Return the graph of `source`; for a built target the cached one, if it fits."""
    if isinstance(source, SavedReport):
        return make_report_graph(source.path, options.data_files())
    beside = source.cache_location(options)
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
    from buildmatrix.commands.why_graph import join_graph
    from buildmatrix.judge.locks import resolve_wheels

    catalogue = load(facts.catalogue)
    parted = split_leftovers(facts.inventory, catalogue)
    items = evidence(parted.whole, catalogue)
    graph = join_graph(
        parted.whole,
        resolve_wheels(parted.installed),
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
    from buildmatrix.sources.target_layers import locate_layers, read_dockerfile

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
    from buildmatrix.commands.why_graph import make_findings_graph
    from buildmatrix.reports.saved import read

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


#: Symbols of one link in an answer.
MOST_SYMBOLS = 1000
#: Links per answer that are examined beside those of its shortest chains: the largest libraries
#: have a hundred thousand symbols.
MOST_OTHERS = 8
#: The same for an answer with everything.
ALL_OTHERS = 200


def add_symbols(answer: Answer, open_tree: OpenTree, *, every: bool = False) -> Answer:
    """Add the symbols that make links to its libraries necessary to `answer`.

    Examines the last link of each shortest chain, then other links to the same libraries, and with
    `every` more of them. Failures are reported.
    """
    try:
        with open_tree() as tree:
            reader = _SymbolReader(answer.graph, tree)
            subjects = []
            left = ALL_OTHERS if every else MOST_OTHERS
            for item in answer.subjects:
                subject = replace(item, use=reader.shortest(item))
                uses = tuple(reader.others(subject, left))
                left -= len(uses)
                subjects.append(replace(subject, uses=uses))
            return replace(answer, subjects=_demangle_symbols(subjects))
    except (OSError, BuildmatrixError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        note = f"which symbols make links necessary: the files cannot be opened again ({why})"
        return replace(answer, notes=(*answer.notes, note))


def _demangle_symbols(subjects: Sequence[AnsweredNode]) -> tuple[AnsweredNode, ...]:
    """Replace all symbols with their readable forms."""
    from buildmatrix.facts.symbols import demangle_symbols

    uses = [use for item in subjects for use in (item.use, *item.uses) if use is not None]
    names = sorted({name for use in uses for name in (*use.names, *use.lacking)})
    readable = dict(zip(names, demangle_symbols(names), strict=True))

    def readable_use(use: Use) -> Use:
        return replace(
            use,
            names=tuple(readable[name] for name in use.names),
            lacking=tuple(readable[name] for name in use.lacking),
        )

    return tuple(
        replace(
            subject,
            use=subject.use and readable_use(subject.use),
            uses=tuple(map(readable_use, subject.uses)),
        )
        for subject in subjects
    )


def _plain_first(names: Iterable[str]) -> tuple[str, ...]:
    """Return sorted `names`, plain ones first: they are informative; mangled ones are long."""
    return tuple(
        sorted(names, key=lambda name: (name.startswith(("_Z", "_R")), name.startswith("_"), name))
    )


class _SymbolReader:
    """Reader that reads each file once."""

    def __init__(self, graph: Graph, tree: Tree) -> None:
        self._graph = graph
        self._tree = tree
        self._symbols_by_id: dict[str, Symbols | None] = {}
        self._defined: dict[str, frozenset[str]] = {}

    def shortest(self, subject: AnsweredNode) -> Use | None:
        """Return the use of the shortest chain's last link; None if it is not a link."""
        edge = next((chain.edges[-1] for chain in subject.chains if chain.edges), None)
        return None if edge is None or edge.kind != "needs" else self._use(edge)

    def others(self, subject: AnsweredNode, most: int) -> Iterator[Use]:
        """Yield the uses of up to `most` other links."""
        chosen: dict[str, Edge] = {}
        for edge in subject.links:
            if edge.kind == "needs" and edge.certain:
                chosen.setdefault(self._graph.nodes[edge.source].label, edge)
        if subject.use is not None:
            chosen.pop(subject.use.binary, None)
        for edge in list(chosen.values())[:most]:
            yield self._use(edge)

    def _use(self, edge: Edge) -> Use:
        binary = self._graph.nodes[edge.source].label
        try:
            return self._read(edge, binary)
        except (OSError, Malformed) as error:
            why = reason(error) if isinstance(error, OSError) else error.reason
            return Use(binary, edge.text, unread=why)

    def _read(self, edge: Edge, binary: str) -> Use:
        """Return imported symbols that the library defines or should; if missing, by version."""
        library = self._graph.nodes[edge.target]
        imported = self._symbols(edge.source)
        is_there = library.kind == "file"
        offered = self._symbols(library.id) if is_there else None
        if imported is None or (is_there and offered is None):
            return Use(binary, edge.text, unread="one of the two is not an ELF object any more")
        defined = self._names(library.id, offered) if offered is not None else frozenset[str]()
        names = {
            undefined.name
            for undefined in imported.undefined
            if undefined.library == edge.text
            or (undefined.library is None and offered is not None and undefined.name in defined)
        }
        lacking: set[str] = set()
        if offered is not None:
            weak = {undefined.name for undefined in imported.undefined if undefined.weak}
            lacking = names - defined - weak
            names &= defined
        if offered is None and not names:
            return Use(
                binary,
                edge.text,
                unread="the library is not there, and its symbols have no versions that name it",
            )
        ordered = _plain_first(names)
        return Use(
            binary,
            edge.text,
            len(names),
            ordered[:MOST_SYMBOLS],
            _plain_first(lacking)[:MOST_SYMBOLS],
        )

    def _symbols(self, id: str) -> Symbols | None:
        if id not in self._symbols_by_id:
            node = self._graph.nodes[id]
            with self._tree.open(node.label) as source:
                self._symbols_by_id[id] = read_symbols(source, node.size)
        return self._symbols_by_id[id]

    def _names(self, id: str, symbols: Symbols) -> frozenset[str]:
        if id not in self._defined:
            self._defined[id] = frozenset(symbols.defined)
        return self._defined[id]
