"""Chains: the ways from where something was asked for down to one node.

A chain is a simple path: it meets no node twice, so cycles end it. The shortest is the one with the
fewest hops, where a hop that only a run may take (a name in the data of a file) counts as several,
and of two ways that are as long the one counts whose file the loader searched for.
There can be as many chains as a graph has paths, so looking for them is bounded, and what is left
out is said.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from buildmatrix.reports.why.graph import Edge, Graph
from buildmatrix.reports.why.model import Chain

#: What a hop counts: to a file that an import loads; one that is taken; one to what the process has
#: already; one that only a run may take.
IMPORTED, CERTAIN, LOADED, UNCERTAIN = 99, 100, 101, 400
#: Chains to one node that are looked for.
MOST_CHAINS = 1000
#: Beginnings of chains that are looked at to find them.
MOST_STEPS = 100_000

Usable = Callable[[Edge], bool]


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains to one node, the shortest first."""

    chains: tuple[Chain, ...]
    #: Whether there are more than these.
    more: bool = False


def certain(edge: Edge) -> bool:
    """For chains of hops that are all taken."""
    return edge.certain


def anything(_: Edge) -> bool:
    """For chains of whatever hops there are."""
    return True


class Ways:
    """Looks for chains in one graph; holds what all searches have in common."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._distances: dict[tuple[int, Usable], Mapping[str, int]] = {}

    def to(
        self,
        target: str,
        *,
        last: Usable | None = None,
        most: int = MOST_CHAINS,
    ) -> Chains:
        """Chains whose last edge into `target` satisfies `last`, or without it any chains.

        They begin with the best kind of root that leads there: a requirement line where one does.
        Hops that are certain are preferred: only where they lead nowhere others are taken too.
        What `last` accepts may be either.
        """
        for usable in (certain, anything):
            for rank in range(len(self._graph.roots)):
                chains = self._search(target, last, usable, rank, most)
                if chains.chains:
                    return chains
        return Chains(())

    def _search(
        self, target: str, last: Usable | None, usable: Usable, rank: int, most: int
    ) -> Chains:
        """Best-first from the end: what is known of the way to the root makes it no guess."""
        graph = self._graph
        roots = frozenset(graph.roots[rank])
        distance = self._distance(rank, usable)
        # Cost, then order of finding, which makes it the same in every run; the way so far.
        ahead: list[tuple[int, int, tuple[Edge, ...]]] = []
        chains: list[Chain] = []
        if target in roots and last is None:
            chains.append(Chain(graph.nodes[target], ()))
        number = 0
        for edge in graph.into.get(target, ()):
            if (last or usable)(edge) and edge.source in distance and edge.source != target:
                heapq.heappush(ahead, (_cost(edge) + distance[edge.source], number, (edge,)))
                number += 1
        steps = 0
        while ahead and len(chains) < most and steps < MOST_STEPS:
            cost, _, way = heapq.heappop(ahead)
            steps += 1
            at = way[0].source
            if at in roots:
                # It may have been asked for by its name, and be required by others too.
                chains.append(Chain(graph.nodes[at], way))
            met = {edge.target for edge in way}
            behind = cost - distance[at]
            for edge in graph.into.get(at, ()):
                if edge.source in distance and edge.source not in met and usable(edge):
                    total = behind + _cost(edge) + distance[edge.source]
                    heapq.heappush(ahead, (total, number, (edge, *way)))
                    number += 1
        return Chains(tuple(chains), more=bool(ahead))

    def _distance(self, rank: int, usable: Usable) -> Mapping[str, int]:
        """Node → cost of the cheapest way to it from a root of this rank (Dijkstra)."""
        key = (rank, usable)
        if key not in self._distances:
            self._distances[key] = _cheapest(self._graph, self._graph.roots[rank], usable)
        return self._distances[key]


def _cheapest(graph: Graph, roots: Iterable[str], usable: Usable) -> Mapping[str, int]:
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
                heapq.heappush(ahead, (cost + _cost(edge), edge.target))
    return costs


def _cost(edge: Edge) -> int:
    if not edge.certain:
        return UNCERTAIN
    if edge.kind == "holds" and edge.at is not None:
        return IMPORTED
    return LOADED if edge.rule == "loaded" else CERTAIN
