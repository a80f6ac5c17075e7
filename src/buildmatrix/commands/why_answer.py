"""Answer to a question: its nodes in the graph, their states, and the chains to them."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from buildmatrix.catalogue.model import Evidence, demangle, matches
from buildmatrix.commands.why_files import file_id, library_id
from buildmatrix.facts.inventory.conda import PREFIX
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import ShadowedFiles
from buildmatrix.reports.why import (
    LINKS,
    OPENS,
    Answer,
    AnsweredNode,
    Chain,
    Edge,
    Graph,
    Node,
    Question,
    State,
    library_stem,
    node_id,
)

if TYPE_CHECKING:
    from buildmatrix.catalogue.load import Catalogue


# Nodes named by LIBRARY.
#
# A backend or a vendor stands for all its nodes; a path, a soname, a distribution or a glob for
# nodes with that name. `libcudart` also matches `libcudart.so.12`, and `cudart` matches
# `libcudart`.


#: Word in lower case to `backend` or `vendor`, and its backends.
Vendors = Mapping[str, tuple[str, tuple[str, ...]]]

#: Number of suggested names.
MOST_NEAR = 8
_GLOB = re.compile(r"[*?\[]")
#: A version in front of `.so`: `libyaml-0.so.2`, `libglib-2.0.so.0`.
_VERSION = re.compile(r"-[0-9][0-9.]*\.so\b")
#: Order of answers: loaded files, missing ones, copies, then nodes that only have the name.
_ORDER = ("file", "library", "embedded", "distribution", "python", "line")


def find_nodes(graph: Graph, text: str, evidence: Iterable[Evidence], words: Vendors) -> Question:
    """Find the nodes that `text` means; `evidence` has those of backends and vendors."""
    word = text.strip()
    owner = words.get(word.lower())
    if owner is not None:
        kind, backends = owner
        return Question(word, kind, _sort_nodes(graph, _find_owned(graph, evidence, backends)))
    # `@scope/name` of npm is no path; of two, the distribution of Python has the bare name.
    ids_of_name = (node_id(distribution_name(word)), node_id(f"{PREFIX}{word}"))
    distribution = next((graph.nodes[id] for id in ids_of_name if id in graph.nodes), None)
    if "/" in word and distribution is None:
        path = word.removeprefix("./").lstrip("/")
        nodes = [node for node in graph.nodes.values() if _has_path(path, node)]
        kind = "path"
    else:
        kind = "glob" if _GLOB.search(word) else "name"
        if distribution is not None:
            # `torch` is the distribution; its library is `libtorch`.
            return Question(
                word, "distribution", (distribution,), buried=_find_shadowed(graph, word)
            )
        nodes = [node for node in graph.nodes.values() if _matches_node(word, node)]
    ids = [node.id for node in nodes]
    near = () if nodes else _suggest_names(graph, word)
    return Question(word, kind, _sort_nodes(graph, ids), near, _find_shadowed(graph, word))


def list_vendor_words(catalogue: Catalogue) -> Vendors:
    """Return the words for backends and vendors in this catalogue."""
    words: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, entry in catalogue.backends.items():
        if entry.vendor is not None:
            kind, names = words.get(entry.vendor, ("vendor", ()))
            words[entry.vendor] = kind, (*names, name)
    for name, entry in catalogue.backends.items():
        for word in (name, *entry.aliases):
            words[word] = "backend", (name,)
    return words


def _find_owned(
    graph: Graph, evidence: Iterable[Evidence], backends: tuple[str, ...]
) -> Iterable[str]:
    """Yield the ids of everything that belongs to one of `backends`."""
    for item in evidence:
        if item.backend not in backends:
            continue
        if item.kind in ("bundled", "tool"):
            yield file_id(item.path)
        elif item.kind in ("static", "device-code"):
            for edge in graph.out.get(file_id(item.path), ()):
                copy = graph.nodes[edge.target].embedded if edge.kind == "embeds" else None
                if copy is not None and copy.backend == item.backend:
                    yield edge.target
        elif item.kind == "declared" and item.distribution is not None:
            yield node_id(item.distribution.partition("==")[0])
        elif item.kind in ("needed", "dlopen", "python-dlopen"):
            # If the name leads to a file, that file is evidence itself (`bundled`).
            yield library_id(item.detail.rpartition("/")[2])


def _has_path(path: str, node: Node) -> bool:
    """True if a file is at `path`, as a glob or a whole path, or ends with it."""
    if node.kind not in ("file", "python"):
        return False
    names = (node.label, *(name for name in node.names if "/" in name))
    return any(item == path or item.endswith(f"/{path}") or matches(path, item) for item in names)


def _find_shadowed(graph: Graph, word: str) -> tuple[ShadowedFiles, ...]:
    """Return hidden files by that name: libraries, packages, and metadata of distributions.

    At most a dozen names are known per folder.
    """
    return tuple(buried for buried in graph.buried if _matches_shadowed(word, buried))


def _matches_shadowed(word: str, buried: ShadowedFiles) -> bool:
    if "/" in word:
        path = word.removeprefix("./").strip("/")
        inside = (f"{buried.path}/{name}" for name in buried.names)
        return any(
            at == path or at.endswith(f"/{path}") or matches(path, at)
            for at in (buried.path, *inside)
        )
    last = buried.path.rpartition("/")[2]
    metadata = re.fullmatch(r"(.+?)(?:-[^-]+)?\.(?:dist|egg)-info", last)
    package = distribution_name(metadata[1] if metadata else last.removesuffix(".libs"))
    return matches(normalize_glob(word), package) or any(
        _matches_library(word, name) for name in buried.names
    )


def _matches_node(word: str, node: Node) -> bool:
    if node.kind == "line":
        return False
    if node.kind == "distribution":
        return any(matches(normalize_glob(word), name) for name in node.names)
    return any(_matches_library(word, name) for name in node.names)


def normalize_glob(word: str) -> str:
    """Return `word` as a normalized name (PEP 503), with its wildcards."""
    return "".join(
        part if _GLOB.search(part) else distribution_name(part)
        for part in re.split(r"(\*|\?|\[[^\]]*\])", word)
    )


def _matches_library(word: str, name: str) -> bool:
    """True if `name` is a name of the library `word`; a shorter version matches all."""
    if _GLOB.search(word):
        return matches(word, name)
    stem = demangle(word)
    return any(
        name == form
        or (name.startswith(f"{form}.") and ".so" in name)
        or (name.startswith(f"{form}-") and _VERSION.match(name, len(form)) is not None)
        for form in (word, stem, f"lib{stem}")
    )


def _sort_nodes(graph: Graph, ids: Iterable[str]) -> tuple[Node, ...]:
    nodes = [graph.nodes[id] for id in dict.fromkeys(ids) if id in graph.nodes]
    # A library with many linkers comes before an unused file of the same folder.
    return tuple(
        sorted(
            nodes,
            key=lambda node: (
                _ORDER.index(node.kind),
                -sum(edge.kind != "holds" for edge in graph.into.get(node.id, ())),
                -node.size,
                node.label,
            ),
        )
    )


def _suggest_names(graph: Graph, word: str) -> tuple[str, ...]:
    """Return names with the word's own part, then those with a similar spelling."""
    core = library_stem(word)
    names: Mapping[str, None] = {
        name: None
        for node in graph.nodes.values()
        for name in node.names
        if node.kind != "line" and name
    }
    inside = [name for name in names if len(core) >= 3 and core in name.lower()]
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(library_stem(name), []).append(name)
    close = difflib.get_close_matches(library_stem(word), list(stems), MOST_NEAR, 0.7)
    alike = [name for stem in close for name in stems[stem]]
    inside.sort(key=lambda name: (len(name), name))
    return tuple(dict.fromkeys((*inside[:MOST_NEAR], *alike)))[:MOST_NEAR]


# Chains: paths from a requirement down to one node.
#
# A chain is a simple path: it visits no node twice, so cycles end it. The shortest has the fewest
# hops, where an uncertain hop (a name in the data of a file) counts as several, and of two with the
# same length, the one with a file that the loader searched for. There can be as many chains as a
# graph has paths, so the search is limited, and omissions are reported.


#: Costs of a hop: to a file loaded by an import; a certain one; to a file already in the process;
#: an uncertain one.
IMPORTED, CERTAIN, LOADED, UNCERTAIN = 99, 100, 101, 400
#: Chains to one node.
MOST_CHAINS = 1000
#: Partial chains examined in a search.
MOST_STEPS = 100_000

Usable = Callable[[Edge], bool]


class Chains(Struct, frozen=True):
    """The chains to one node, the shortest first."""

    chains: tuple[Chain, ...]
    #: True if there are more.
    more: bool = False


class ChainFinder:
    """Searches chains in one graph, sharing distances between searches."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        #: By the rank of roots, and whether hops have to be certain.
        self._distances: dict[tuple[int, bool], Mapping[str, int]] = {}

    def find(self, target: str, *, last: Usable | None = None, most: int = MOST_CHAINS) -> Chains:
        """Return chains whose last edge into `target` satisfies `last`; by default, any chains.

        They begin with the best kind of root that leads there: a requirement line, if possible.
        Uncertain hops are used only if certain ones lead nowhere. The edges accepted by `last` may
        be either.
        """
        for certain in (True, False):
            for rank in range(len(self._graph.roots)):
                chains = self._search(target, last, certain, rank, most)
                if chains.chains:
                    return chains
        return Chains(())

    def _search(
        self, target: str, last: Usable | None, certain: bool, rank: int, most: int
    ) -> Chains:
        """Search best-first from the end, guided by the known distances to the roots."""
        graph = self._graph
        roots = frozenset(graph.roots[rank])
        if (rank, certain) not in self._distances:
            self._distances[rank, certain] = _find_cheapest(graph, roots, certain)
        distance = self._distances[rank, certain]
        # Cost, then order of discovery, which makes the result deterministic; the path so far.
        ahead: list[tuple[int, int, tuple[Edge, ...]]] = []
        chains: list[Chain] = []
        if target in roots and last is None:
            chains.append(Chain(graph.nodes[target], ()))
        number = 0
        for edge in graph.into.get(target, ()):
            is_last = last(edge) if last is not None else edge.certain or not certain
            if is_last and edge.source in distance and edge.source != target:
                cost = _compute_cost(edge) + distance[edge.source]
                heapq.heappush(ahead, (cost, number, (edge,)))
                number += 1
        steps = 0
        while ahead and len(chains) < most and steps < MOST_STEPS:
            cost, _, way = heapq.heappop(ahead)
            steps += 1
            at = way[0].source
            if at in roots:
                # It may have been requested by name, and be required by others too.
                chains.append(Chain(graph.nodes[at], way))
            met = {edge.target for edge in way}
            behind = cost - distance[at]
            for edge in graph.into.get(at, ()):
                if edge.source not in distance or edge.source in met:
                    continue
                if edge.certain or not certain:
                    total = behind + _compute_cost(edge) + distance[edge.source]
                    heapq.heappush(ahead, (total, number, (edge, *way)))
                    number += 1
        return Chains(tuple(chains), more=bool(ahead))


def _find_cheapest(graph: Graph, roots: Iterable[str], certain: bool) -> Mapping[str, int]:
    """Map nodes to the cost of the cheapest path from a root (Dijkstra)."""
    costs: dict[str, int] = {}
    ahead = [(0, root) for root in roots]
    heapq.heapify(ahead)
    while ahead:
        cost, id = heapq.heappop(ahead)
        if id in costs:
            continue
        costs[id] = cost
        for edge in graph.out.get(id, ()):
            if edge.target not in costs and (edge.certain or not certain):
                heapq.heappush(ahead, (cost + _compute_cost(edge), edge.target))
    return costs


def _compute_cost(edge: Edge) -> int:
    if not edge.certain:
        return UNCERTAIN
    if edge.kind == "holds" and edge.at is not None:
        return IMPORTED
    return LOADED if edge.rule == "loaded" else CERTAIN


# Answer


#: Nodes of one answer with chains: a pattern may match thousands.
MOST_SUBJECTS = 200
#: Nodes that link or open one node, listed by name.
MOST_ASKERS = 1000


def make_answer(
    source: str, graph: Graph, question: Question, *, every: bool, subjects: int, most: int
) -> Answer:
    """Find the chains to the nodes of `question`.

    Chains are searched to its first `subjects` nodes. Each gets the shortest, or, with `every`, the
    `most` shortest.
    """
    ways = ChainFinder(graph)
    candidates = question.nodes if every else _put_distinct_first(question.nodes)
    nodes = candidates[: min(subjects, MOST_SUBJECTS)]
    return Answer(
        source,
        question,
        tuple(_make_subject(graph, ways, node, most if every else 1) for node in nodes),
        graph,
        left_out=candidates[len(nodes) :],
        notes=graph.notes,
    )


def _put_distinct_first(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Put one node of each kind and distribution first, as one stands for thirty copies."""
    first: dict[tuple[str, str | None, str], Node] = {}
    for node in nodes:
        first.setdefault((node.kind, node.owner, node.embedded.name if node.embedded else ""), node)
    ahead = {node.id for node in first.values() if node.owner is not None}
    return tuple(sorted(nodes, key=lambda node: node.owner is not None and node.id not in ahead))


def _make_subject(graph: Graph, ways: ChainFinder, node: Node, most: int) -> AnsweredNode:
    into = graph.into.get(node.id, ())
    links = tuple(edge for edge in into if edge.kind in LINKS)
    opens = tuple(edge for edge in into if edge.kind in OPENS)
    state, last = _find_state(node, links, opens)
    chains = ways.find(node.id, last=last)
    if not chains.chains:
        chains = ways.find(node.id)
    return AnsweredNode(
        node,
        state,
        chains.chains[:most],
        more=chains.more,
        count=len(chains.chains),
        brought=_find_origin(ways, node, chains),
        claims=tuple(
            graph.nodes[edge.source]
            for edge in into
            if edge.kind == "holds" and node.owner not in (None, edge.source)
        ),
        links=links[:MOST_ASKERS],
        opens=opens[:MOST_ASKERS],
    )


def _find_state(
    node: Node, links: Sequence[Edge], opens: Sequence[Edge]
) -> tuple[State, Usable | None]:
    """Return the state of a node, and a test for the last hops that cause it; None for any."""
    if node.kind == "embedded":
        return "embedded", None
    if node.kind == "distribution":
        return "installed", None
    if any(edge.kind in LINKS and edge.certain for edge in links):
        state: State = "missing" if node.kind == "library" else "linked"
        return state, lambda edge: edge.kind in LINKS and edge.certain
    if links:
        return "unfound", lambda edge: edge.kind in LINKS
    if node.kind == "library" or opens:
        state = "absent" if node.kind == "library" else "opened"
        return state, lambda edge: edge.kind in OPENS
    return "present", lambda edge: edge.kind == "holds"


def _find_origin(ways: ChainFinder, node: Node, shown: Chains) -> Chain | None:
    """Return how the file was installed, unless the chains show it anyway."""
    if node.kind != "file" or node.owner is None:
        return None
    if shown.chains and shown.chains[0].edges and shown.chains[0].edges[-1].kind == "holds":
        return None
    chains = ways.find(
        node.id, last=lambda edge: edge.kind == "holds" and edge.source == node.owner, most=1
    ).chains
    return chains[0] if chains else None
