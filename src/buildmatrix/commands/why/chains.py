"""Chains: paths from a requirement down to one node.

A chain is a simple path: it visits no node twice, so cycles end it. The shortest has the fewest
hops, where an uncertain hop (a name in the data of a file) counts as several, and of two with the
same length, the one with a file that the loader searched for. There can be as many chains as a
graph has paths, so the search is limited, and omissions are reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from buildmatrix.reports.why.model import Chain, Edge, Graph

#: Costs of a hop: to a file loaded by an import; a certain one; to a file already in the process;
#: an uncertain one.
IMPORTED, CERTAIN, LOADED, UNCERTAIN = 99, 100, 101, 400
#: Chains to one node.
MOST_CHAINS = 1000
#: Partial chains examined in a search.
MOST_STEPS = 100_000

Usable = Callable[[Edge], bool]


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains to one node, the shortest first."""

    chains: tuple[Chain, ...]
    #: True if there are more.
    more: bool = False


def is_certain(edge: Edge) -> bool:
    """Accept certain hops."""
    return edge.certain


def is_any(_: Edge) -> bool:
    """Accept any hop."""
    return True


class ChainFinder:
    """Searches chains in one graph, sharing distances between searches."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._distances: dict[tuple[int, Usable], Mapping[str, int]] = {}

    def find(
        self,
        target: str,
        *,
        last: Usable | None = None,
        most: int = MOST_CHAINS,
    ) -> Chains:
        """Return chains whose last edge into `target` satisfies `last`; by default, any chains.

        They begin with the best kind of root that leads there: a requirement line, if possible.
        Uncertain hops are used only if certain ones lead nowhere. The edges accepted by `last` may
        be either.
        """
        for usable in (is_certain, is_any):
            for rank in range(len(self._graph.roots)):
                chains = self._search(target, last, usable, rank, most)
                if chains.chains:
                    return chains
        return Chains(())

    def _search(
        self, target: str, last: Usable | None, usable: Usable, rank: int, most: int
    ) -> Chains:
        """Search best-first from the end, guided by the known distances to the roots."""
        graph = self._graph
        roots = frozenset(graph.roots[rank])
        distance = self._find_distances(rank, usable)
        # Cost, then order of discovery, which makes the result deterministic; the path so far.
        ahead: list[tuple[int, int, tuple[Edge, ...]]] = []
        chains: list[Chain] = []
        if target in roots and last is None:
            chains.append(Chain(graph.nodes[target], ()))
        number = 0
        for edge in graph.into.get(target, ()):
            if (last or usable)(edge) and edge.source in distance and edge.source != target:
                heapq.heappush(
                    ahead, (_compute_cost(edge) + distance[edge.source], number, (edge,))
                )
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
                if edge.source in distance and edge.source not in met and usable(edge):
                    total = behind + _compute_cost(edge) + distance[edge.source]
                    heapq.heappush(ahead, (total, number, (edge, *way)))
                    number += 1
        return Chains(tuple(chains), more=bool(ahead))

    def _find_distances(self, rank: int, usable: Usable) -> Mapping[str, int]:
        """Map nodes to the cost of the cheapest path from a root of this rank (Dijkstra)."""
        key = (rank, usable)
        if key not in self._distances:
            self._distances[key] = _find_cheapest(self._graph, self._graph.roots[rank], usable)
        return self._distances[key]


def _find_cheapest(graph: Graph, roots: Iterable[str], usable: Usable) -> Mapping[str, int]:
    costs: dict[str, int] = {}
    ahead = [(0, root) for root in roots]
    heapq.heapify(ahead)
    while ahead:
        cost, id = heapq.heappop(ahead)
        if id in costs:
            continue
        costs[id] = cost
        for edge in graph.out.get(id, ()):
            if edge.target not in costs and usable(edge):
                heapq.heappush(ahead, (cost + _compute_cost(edge), edge.target))
    return costs


def _compute_cost(edge: Edge) -> int:
    if not edge.certain:
        return UNCERTAIN
    if edge.kind == "holds" and edge.at is not None:
        return IMPORTED
    return LOADED if edge.rule == "loaded" else CERTAIN
