"""Symbols that binaries use from the libraries they link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.engines.model import OpenTree
from buildmatrix.facts.elf.headers import Malformed
from buildmatrix.facts.elf.model import Symbols
from buildmatrix.facts.elf.symbols import read_symbols
from buildmatrix.facts.trees.base import Tree, reason
from buildmatrix.reports.why.model import Answer, AnsweredNode, Edge, Graph, Use

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
