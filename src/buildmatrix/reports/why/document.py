"""The answer of `why` in its JSON form, with the graph's ids written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.reports.json_form import INLINE, key
from buildmatrix.reports.why import words
from buildmatrix.reports.why.model import (
    Answer,
    AnsweredNode,
    Chain,
    Edge,
    Embedded,
    Graph,
    Node,
    NodeKind,
    State,
    Use,
)


@dataclass(frozen=True, slots=True)
class LayerOrigin:
    """A layer of an image, and where its instruction stands."""

    index: int
    digest: str
    instruction: str
    #: `Dockerfile:12`, or the base image.
    place: str | None


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """Files of one layer that a later one deleted or replaced."""

    path: str
    files: int
    size: int
    names: tuple[str, ...]
    replaced: bool
    layer: LayerOrigin | None
    by: LayerOrigin | None


@dataclass(frozen=True)
class NamedNode:
    """A node of the graph by its name."""

    kind: NodeKind
    name: str
    text: str


@dataclass(frozen=True)
class ChainStart(NamedNode):
    """The node that a chain begins with, and why."""

    reason: str


@dataclass(frozen=True)
class ChainHop(ChainStart):
    """A node that a chain goes on to, and the edge that leads to it."""

    edge: Edge = field(metadata=INLINE)


@dataclass(frozen=True, slots=True)
class IncomingEdge:
    """An edge to the node that was asked about."""

    #: Name of the node that it leaves.
    source: str = field(metadata=key("from"))
    reason: str
    edge: Edge = field(metadata=INLINE)


@dataclass(frozen=True)
class NodeDetails(NamedNode):
    """A node that was asked about."""

    size: int
    names: tuple[str, ...]
    distribution: str | None
    layer: LayerOrigin | None
    copy: Embedded | None


@dataclass(frozen=True)
class NodeAnswer(NodeDetails):
    """Ways to a node; see `reports.why.model.AnsweredNode`."""

    state: State
    chains: tuple[tuple[NamedNode, ...], ...]
    found: int
    more: bool
    brought: tuple[NamedNode, ...] | None
    claims: tuple[str, ...]
    links: tuple[IncomingEdge, ...]
    opens: tuple[IncomingEdge, ...]
    symbols: Use | None
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class QuestionSummary:
    """Question of `why`."""

    text: str
    kind: str
    #: How many nodes it means.
    matches: int


@dataclass(frozen=True, slots=True)
class WhyDocument:
    """Everything that `why` says."""

    schema: Literal["buildmatrix/why/1"] = field(default="buildmatrix/why/1", kw_only=True)
    source: str
    question: QuestionSummary
    answers: tuple[NodeAnswer, ...]
    others: tuple[NodeDetails, ...]
    near: tuple[str, ...]
    hidden: tuple[HiddenFiles, ...]
    notes: tuple[str, ...]


def make_document(answer: Answer) -> WhyDocument:
    """The document that an answer makes."""
    graph, question = answer.graph, answer.question
    return WhyDocument(
        answer.source,
        QuestionSummary(question.text, question.kind, len(question.nodes)),
        tuple(_answer(graph, subject) for subject in answer.subjects),
        tuple(_node(graph, node) for node in answer.left_out),
        question.near,
        tuple(
            HiddenFiles(
                buried.path,
                buried.files,
                buried.size,
                buried.names,
                buried.replaced,
                _layer(graph, buried.layer),
                _layer(graph, buried.by),
            )
            for buried in question.buried
        ),
        answer.notes,
    )


def _answer(graph: Graph, subject: AnsweredNode) -> NodeAnswer:
    return NodeAnswer(
        **vars(_node(graph, subject.node)),
        state=subject.state,
        chains=tuple(_chain(graph, chain) for chain in subject.chains),
        found=subject.count,
        more=subject.more,
        brought=_chain(graph, subject.brought) if subject.brought is not None else None,
        claims=tuple(claim.label for claim in subject.claims),
        links=tuple(_incoming(graph, edge) for edge in subject.links),
        opens=tuple(_incoming(graph, edge) for edge in subject.opens),
        symbols=subject.use,
        uses=subject.uses,
    )


def _node(graph: Graph, node: Node) -> NodeDetails:
    owner = graph.nodes.get(node.owner or "")
    return NodeDetails(
        node.kind,
        node.label,
        node.text,
        node.size,
        node.names,
        owner.label if owner is not None else None,
        _layer(graph, node.layer),
        node.embedded,
    )


def _layer(graph: Graph, index: int | None) -> LayerOrigin | None:
    if index is None or not 0 <= index < len(graph.layers):
        return None
    layer = graph.layers[index]
    place = words.place(graph, index) or None
    return LayerOrigin(index, layer.digest, layer.instruction, place)


def _chain(graph: Graph, chain: Chain) -> tuple[NamedNode, ...]:
    start = chain.start
    return (
        ChainStart(start.kind, start.label, start.text, words.beginning(graph, start)),
        *(_hop(graph.nodes[edge.target], edge) for edge in chain.edges),
    )


def _hop(node: Node, edge: Edge) -> ChainHop:
    return ChainHop(node.kind, node.label, node.text, words.reason(edge), edge)


def _incoming(graph: Graph, edge: Edge) -> IncomingEdge:
    return IncomingEdge(graph.nodes[edge.source].label, words.reason(edge), edge)
