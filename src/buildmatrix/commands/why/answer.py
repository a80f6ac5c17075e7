"""Answer to a question: the chains to each matching node, and its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from buildmatrix.commands.why.chains import ChainFinder, Chains
from buildmatrix.reports.why.model import (
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
)

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
    node: Node, links: Iterable[Edge], opens: Iterable[Edge]
) -> tuple[State, Callable[[Edge], bool] | None]:
    """Return the state of a node, and a test for the last hops that cause it; None for any."""
    if node.kind == "embedded":
        return "embedded", None
    if node.kind == "distribution":
        return "installed", None
    if any(edge.kind in LINKS and edge.certain for edge in links):
        return ("missing" if node.kind == "library" else "linked"), _is_certain_link
    if any(True for _ in links):
        return "unfound", _is_link
    if node.kind == "library":
        return "absent", _is_open
    if any(True for _ in opens):
        return "opened", _is_open
    return "present", _is_hold


def _is_certain_link(edge: Edge) -> bool:
    return edge.kind in LINKS and edge.certain


def _is_link(edge: Edge) -> bool:
    return edge.kind in LINKS


def _is_open(edge: Edge) -> bool:
    return edge.kind in OPENS


def _is_hold(edge: Edge) -> bool:
    return edge.kind == "holds"


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
