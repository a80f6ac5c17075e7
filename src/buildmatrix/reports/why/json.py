"""The answer of `why` as JSON."""

from __future__ import annotations

import json

from buildmatrix.reports.why import words
from buildmatrix.reports.why.graph import Edge, Graph, Node
from buildmatrix.reports.why.model import Answer, AnsweredNode, Chain, Use

SCHEMA = "buildmatrix/why/1"


def render(answer: Answer) -> str:
    """One document, the same for the same answer."""
    graph = answer.graph
    document = {
        "schema": SCHEMA,
        "source": answer.source,
        "question": {
            "text": answer.question.text,
            "kind": answer.question.kind,
            "matches": len(answer.question.nodes),
        },
        "answers": [_subject(graph, subject) for subject in answer.subjects],
        "others": [_node(graph, node) for node in answer.left_out],
        "near": list(answer.question.near),
        "hidden": [
            {
                "path": buried.path,
                "files": buried.files,
                "size": buried.size,
                "names": list(buried.names),
                "replaced": buried.replaced,
                "layer": _layer(graph, buried.layer),
                "by": _layer(graph, buried.by),
            }
            for buried in answer.question.buried
        ],
        "notes": list(answer.notes),
    }
    return json.dumps(document, indent=2) + "\n"


def _subject(graph: Graph, subject: AnsweredNode) -> dict[str, object]:
    use = subject.use
    return {
        **_node(graph, subject.node),
        "state": subject.state,
        "chains": [_chain(graph, chain) for chain in subject.chains],
        "found": subject.count,
        "more": subject.more,
        "brought": _chain(graph, subject.brought) if subject.brought is not None else None,
        "claims": [claim.label for claim in subject.claims],
        "links": [_edge(graph, edge) for edge in subject.links],
        "opens": [_edge(graph, edge) for edge in subject.opens],
        "symbols": None if use is None else _use(use),
        "uses": [_use(other) for other in subject.uses],
    }


def _use(use: Use) -> dict[str, object]:
    return {
        "binary": use.binary,
        "needed": use.name,
        "count": use.count,
        "names": list(use.symbols),
        "unread": use.unread,
    }


def _node(graph: Graph, node: Node) -> dict[str, object]:
    owner = graph.nodes.get(node.owner or "")
    copy = node.embedded
    return {
        "kind": node.kind,
        "name": node.label,
        "text": node.text,
        "size": node.size,
        "names": list(node.names),
        "distribution": owner.label if owner is not None else None,
        "layer": _layer(graph, node.layer),
        "copy": None
        if copy is None
        else {
            "kind": copy.kind,
            "vendor": copy.vendor,
            "backend": copy.backend,
            "section": copy.section,
            "offset": copy.offset,
            "size": copy.size,
            "architectures": list(copy.architectures),
            "marks": list(copy.marks),
            "path": copy.path,
        },
    }


def _layer(graph: Graph, index: int | None) -> dict[str, object] | None:
    if index is None or not 0 <= index < len(graph.layers):
        return None
    layer = graph.layers[index]
    return {
        "index": index,
        "digest": layer.digest,
        "instruction": layer.instruction,
        "place": words.place(graph, index) or None,
    }


def _chain(graph: Graph, chain: Chain) -> list[dict[str, object]]:
    start: dict[str, object] = {
        "kind": chain.start.kind,
        "name": chain.start.label,
        "text": chain.start.text,
        "reason": words.beginning(graph, chain.start),
    }
    return [start, *(_hop(graph, edge) for edge in chain.edges)]


def _hop(graph: Graph, edge: Edge) -> dict[str, object]:
    node = graph.nodes[edge.target]
    return {"kind": node.kind, "name": node.label, "text": node.text, **_why(edge)}


def _edge(graph: Graph, edge: Edge) -> dict[str, object]:
    return {"from": graph.nodes[edge.source].label, **_why(edge)}


def _why(edge: Edge) -> dict[str, object]:
    return {
        "reason": words.reason(edge),
        "edge": edge.kind,
        "written": edge.text,
        "condition": edge.condition,
        "rule": edge.rule,
        "by": edge.by,
        "folder": edge.folder,
        "searched": list(edge.searched),
        "at": edge.at,
        "offset": edge.offset,
        "certain": edge.certain,
    }
