"""The answer to a question: for each node that it means, how one gets there, and what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from buildmatrix.commands.why.chains import Chains, Ways
from buildmatrix.reports.why.graph import LINKS, OPENS, Edge, Graph, Node
from buildmatrix.reports.why.model import Answer, AnsweredNode, Chain, Question, State

#: Nodes of one answer that chains are looked for: a pattern may mean thousands.
MOST_SUBJECTS = 200
#: Others that link or open one node, that are listed by name.
MOST_ASKERS = 1000


def answer(
    source: str, graph: Graph, question: Question, *, every: bool, subjects: int, most: int
) -> Answer:
    """Look for the chains to what `question` means.

    Chains are looked for to the first `subjects` of its nodes; of each the shortest is kept, or,
    with `every`, the `most` shortest.
    """
    ways = Ways(graph)
    candidates = question.nodes if every else _each_first(question.nodes)
    nodes = candidates[: min(subjects, MOST_SUBJECTS)]
    return Answer(
        source,
        question,
        tuple(_subject(graph, ways, node, most if every else 1) for node in nodes),
        graph,
        left_out=candidates[len(nodes) :],
        notes=graph.notes,
    )


def _each_first(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """`nodes` with one of each sort and distribution first: one stands for thirty copies."""
    first: dict[tuple[str, str | None, str], Node] = {}
    for node in nodes:
        first.setdefault((node.kind, node.owner, node.embedded.name if node.embedded else ""), node)
    ahead = {node.id for node in first.values() if node.owner is not None}
    return tuple(sorted(nodes, key=lambda node: node.owner is not None and node.id not in ahead))


def _subject(graph: Graph, ways: Ways, node: Node, most: int) -> AnsweredNode:
    into = graph.into.get(node.id, ())
    links = tuple(edge for edge in into if edge.kind in LINKS)
    opens = tuple(edge for edge in into if edge.kind in OPENS)
    state, last = _state(node, links, opens)
    chains = ways.to(node.id, last=last)
    if not chains.chains:
        chains = ways.to(node.id)
    return AnsweredNode(
        node,
        state,
        chains.chains[:most],
        more=chains.more,
        count=len(chains.chains),
        brought=_brought(ways, node, chains),
        claims=tuple(
            graph.nodes[edge.source]
            for edge in into
            if edge.kind == "holds" and node.owner not in (None, edge.source)
        ),
        links=links[:MOST_ASKERS],
        opens=opens[:MOST_ASKERS],
    )


def _state(
    node: Node, links: Iterable[Edge], opens: Iterable[Edge]
) -> tuple[State, Callable[[Edge], bool] | None]:
    """What is to be said of a node, and which last hops make it so; None for any."""
    if node.kind == "embedded":
        return "embedded", None
    if node.kind == "distribution":
        return "installed", None
    if any(edge.kind in LINKS and edge.certain for edge in links):
        return ("missing" if node.kind == "library" else "linked"), _certain_link
    if any(True for _ in links):
        return "unfound", _link
    if node.kind == "library":
        return "absent", _open
    if any(True for _ in opens):
        return "opened", _open
    return "present", _hold


def _certain_link(edge: Edge) -> bool:
    return edge.kind in LINKS and edge.certain


def _link(edge: Edge) -> bool:
    return edge.kind in LINKS


def _open(edge: Edge) -> bool:
    return edge.kind in OPENS


def _hold(edge: Edge) -> bool:
    return edge.kind == "holds"


def _brought(ways: Ways, node: Node, shown: Chains) -> Chain | None:
    """How the file came to be there, where that is not what the chains say anyway."""
    if node.kind != "file" or node.owner is None:
        return None
    if shown.chains and shown.chains[0].edges and shown.chains[0].edges[-1].kind == "holds":
        return None
    chains = ways.to(
        node.id, last=lambda edge: edge.kind == "holds" and edge.source == node.owner, most=1
    ).chains
    return chains[0] if chains else None
