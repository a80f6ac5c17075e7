"""Edges, layers and copies in words: the same in every format."""

from __future__ import annotations

import posixpath
import re

from buildmatrix.base.text import count, listing, size
from buildmatrix.facts.inventory.model import ShadowedFiles
from buildmatrix.reports.sections import cut
from buildmatrix.reports.why.model import Edge, Embedded, Graph, Node, Question

#: Folders of a failed search that are shown.
MOST_SEARCHED = 6
#: Architectures of one copy that are shown.
MOST_ARCHITECTURES = 16
#: Characters of a Dockerfile instruction that are shown.
LONGEST_INSTRUCTION = 200

#: Search rule of the loader → how it is shown.
RULES = {
    "loaded": "already loaded in the process",
    "path": "a path",
    "rpath": "RPATH",
    "inherited-rpath": "inherited RPATH",
    "environment": "LD_LIBRARY_PATH",
    "runpath": "RUNPATH",
    "cache": "ld.so.cache",
    "default": "the default folders",
}


def reason(edge: Edge) -> str:
    """Describe an edge: `NEEDED libcudart.so.12, found by RUNPATH of ... in ...`."""
    match edge.kind:
        case "asks":
            return edge.text and f"the line says {edge.text}"
        case "requires":
            when = f" ({edge.condition})" if edge.condition else ""
            unsure = "" if edge.certain else ": whether that was requested is not recorded"
            return f"requires {edge.text}{when}{unsure}"
        case "holds":
            at = f", {edge.at}" if edge.at else ""
            return f"{edge.text}{at}"
        case "needs":
            return f"NEEDED {edge.text}, {_link_resolution(edge)}"
        case "preloads":
            return f"LD_PRELOAD or ld.so.preload: {edge.text}"
        case "dlopen":
            at = "" if edge.offset is None else f" at byte {edge.offset:#x}"
            return f"names {edge.text} in its data{at}: it may dlopen it"
        case "dlopen-note":
            return f".note.dlopen says {edge.text}"
        case "python":
            when = f" ({edge.condition})" if edge.condition else ""
            return f"{edge.text} at {edge.at}{when}"
        case "imports":
            return f"imports {edge.text} at {edge.at}, without requiring it"
        case "embeds":
            return f"holds {edge.text}"


def _link_resolution(edge: Edge) -> str:
    if edge.rule == "names":
        return "by its name only; its search path was not read"
    if edge.rule == "report":
        return "the report does not say by which rule it is found"
    if edge.rule is None:
        if edge.certain:
            return "which the loader does not find"
        if edge.at is not None:
            return f"not found by the loader, but loaded before by {edge.at}"
        return "not found by the loader: only a process that has it already can load this"
    rule = RULES.get(edge.rule, edge.rule)
    if edge.rule == "loaded":
        return f"{rule}" + (
            f": {edge.by} asked first" if edge.by and edge.by != edge_path(edge) else ""
        )
    if edge.by == edge_path(edge):
        rule = f"its {rule}"
    origin = f" of {edge.by}" if edge.by not in (None, edge_path(edge)) else ""
    where = f" in {posixpath.normpath(edge.folder)}" if edge.folder else ""
    return f"found by {rule}{origin}{where}"


def edge_path(edge: Edge) -> str:
    """Path of the file that an edge leaves."""
    return edge.source.partition(":")[2]


def searched_places(edge: Edge) -> str:
    """Return the places that the loader searched in vain."""
    folders = [posixpath.normpath(folder) for folder in edge.searched]
    if not folders:
        return "nowhere: no search path leads to a folder of the tree"
    more = len(folders) - MOST_SEARCHED
    shown = ", ".join(folders[:MOST_SEARCHED])
    return f"{shown} and {more} more" if more > 0 else shown


def copy(embedded: Embedded) -> str:
    """Describe code inside of a file."""
    parts = []
    if embedded.section is not None:
        parts.append(f"section {embedded.section}")
    if embedded.offset is not None:
        parts.append(f"at byte {embedded.offset:#x}")
    if embedded.size:
        about = "" if embedded.kind == "device-code" else "about "
        parts.append(about + size(embedded.size))
    if embedded.architectures:
        parts.append(f"for {listing(embedded.architectures, MOST_ARCHITECTURES, ' ')}")
    elif embedded.kind == "device-code":
        parts.append("architectures unknown")
    if embedded.marks:
        parts.append(f"proved by {', '.join(embedded.marks)}")
    return ", ".join(parts)


def layer(graph: Graph, node: Node) -> str | None:
    """The layer that put a file there, and its instruction; None where that is not known."""
    if node.layer is None or not 0 <= node.layer < len(graph.layers):
        return None
    where = place(graph, node.layer)
    return _instruction(graph, node.layer) + (where and f", {where}")


def _instruction(graph: Graph, layer: int) -> str:
    """`layer 6 of 9: RUN pip install ...`"""
    instruction = graph.layers[layer].instruction if layer < len(graph.layers) else ""
    text = cut(made_by(instruction), LONGEST_INSTRUCTION)
    return f"layer {layer + 1} of {len(graph.layers)}: {text}"


def made_by(instruction: str) -> str:
    """The instruction of a layer on one line, or that there is none."""
    return " ".join(instruction.split()) or "an instruction that the image does not record"


def describe_hidden(graph: Graph, item: ShadowedFiles) -> str:
    """Describe files that layers hide: which layer brought and which removed them."""
    verb = "replaced" if item.replaced else "deleted"
    about = f"{count(item.files, 'file')}, {size(item.size)}"
    return (
        f"{item.path or '/'} ({about}) came with {_instruction(graph, item.layer)} and was "
        f"{verb} by {_instruction(graph, item.by)}: no container sees it, and every pull carries it"
    )


def place(graph: Graph, layer: int) -> str:
    """Return the place of a layer's instruction; empty if unknown."""
    return graph.places[layer] if layer < len(graph.places) else ""


def beginning(graph: Graph, node: Node) -> str:
    """Explain why a chain begins with this node."""
    if node.kind == "line":
        return ""
    if node.kind == "distribution" and graph.is_partial:
        return "the report does not say who requires it"
    if node.kind == "distribution":
        how = f"{node.text}; " if node.text else ""
        if node.id in (graph.roots[1] if len(graph.roots) > 1 else ()):
            return f"{how}requested by name when it was installed"
        if node.id in (graph.roots[2] if len(graph.roots) > 2 else ()):
            return f"{how}{_free(graph, node)}".removesuffix("; ")
        return f"{how}a cycle of distributions that require each other"
    return f"of {node.text}" if node.text else "no Python distribution owns it"


def _free(graph: Graph, node: Node) -> str:
    """The reason why it is unknown what brought a distribution."""
    if sum(child.kind == "distribution" for child in graph.nodes.values()) == 1:
        return ""
    for edge in graph.into.get(node.id, ()):
        if edge.kind == "requires":
            return (
                f"no other distribution requires it, unless {graph.nodes[edge.source].label} was "
                f"requested with {edge.condition or 'an extra'}"
            )
    return "no other distribution requires it"


def other_names(question: Question, node: Node) -> tuple[str, ...]:
    """By what names a file is meant whose own name does not show it: links, and its SONAME."""
    core = library_stem(question.text)
    if node.kind != "file" or question.kind != "name" or core in node.label.lower():
        return ()
    return tuple(name for name in node.names if core in name.lower())


def library_stem(name: str) -> str:
    """`cudart` of `libcudart.so.12`, in lower case."""
    return re.sub(r"^lib|[*?]|\.so.*$", "", name.rpartition("/")[2]).lower()
