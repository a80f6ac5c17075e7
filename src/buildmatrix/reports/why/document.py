"""The answer of `why` in its JSON form, with the graph's ids written out."""

from __future__ import annotations

from buildmatrix.reports.json_form import Json, plain
from buildmatrix.reports.why import words
from buildmatrix.reports.why.model import Answer, AnsweredNode, Chain, Edge, Graph, Node


def make_document(answer: Answer) -> dict[str, Json]:
    """The document that an answer makes."""
    graph, question = answer.graph, answer.question
    return {
        "schema": "buildmatrix/why/1",
        "source": answer.source,
        "question": {
            "text": question.text,
            "kind": question.kind,
            # How many nodes it means.
            "matches": len(question.nodes),
        },
        "answers": [_answer(graph, subject) for subject in answer.subjects],
        "others": [_node(graph, node) for node in answer.left_out],
        "near": [*question.near],
        "hidden": [
            {
                "path": buried.path,
                "files": buried.files,
                "size": buried.size,
                "names": [*buried.names],
                "replaced": buried.replaced,
                "layer": _layer(graph, buried.layer),
                "by": _layer(graph, buried.by),
            }
            for buried in question.buried
        ],
        "notes": [*answer.notes],
    }


def _answer(graph: Graph, subject: AnsweredNode) -> Json:
    return {
        **_node(graph, subject.node),
        "state": subject.state,
        "chains": [_chain(graph, chain) for chain in subject.chains],
        "found": subject.count,
        "more": subject.more,
        "brought": _chain(graph, subject.brought) if subject.brought is not None else None,
        "claims": [claim.label for claim in subject.claims],
        "links": [_incoming(graph, edge) for edge in subject.links],
        "opens": [_incoming(graph, edge) for edge in subject.opens],
        "symbols": plain(subject.use),
        "uses": plain(subject.uses),
    }


def _name_fields(node: Node) -> dict[str, Json]:
    return {"kind": node.kind, "name": node.label, "text": node.text}


def _node(graph: Graph, node: Node) -> dict[str, Json]:
    owner = graph.nodes.get(node.owner or "")
    return {
        **_name_fields(node),
        "size": node.size,
        "names": [*node.names],
        "distribution": owner.label if owner is not None else None,
        "layer": _layer(graph, node.layer),
        "copy": plain(node.embedded),
    }


def _layer(graph: Graph, index: int | None) -> Json:
    """A layer of an image, and where its instruction stands: `Dockerfile:12`, or the base image."""
    if index is None or not 0 <= index < len(graph.layers):
        return None
    layer = graph.layers[index]
    return {
        "index": index,
        "digest": layer.digest,
        "instruction": layer.instruction,
        "place": words.place(graph, index) or None,
    }


def _chain(graph: Graph, chain: Chain) -> Json:
    start: Json = {**_name_fields(chain.start), "reason": words.beginning(graph, chain.start)}
    hops: list[Json] = [
        {**_name_fields(graph.nodes[edge.target]), "reason": words.reason(edge), **plain(edge)}
        for edge in chain.edges
    ]
    return [start, *hops]


def _incoming(graph: Graph, edge: Edge) -> Json:
    return {"from": graph.nodes[edge.source].label, "reason": words.reason(edge), **plain(edge)}
