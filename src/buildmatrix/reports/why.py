"""The graph of files and distributions that `why` searches, questions, answers, and their words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, listing, size
from buildmatrix.facts.inventory.model import Layer, ShadowedFiles
from buildmatrix.judge.model import IN_MEMORY
from buildmatrix.reports.json_form import key
from buildmatrix.reports.sections import cut

# The joined graph: immutable, built by `commands.why_graph`.
#
# Each edge leads from a requirer to its provider: from a requirement line to a distribution, from a
# distribution to its files, from a file to a library that it links. The graph has cycles:
# distributions require each other, and so do libraries.


#: `line` a requirement line of a file; `distribution`; `file` an ELF object, a file of device code
#: or a link; `python` a Python file that loads libraries; `library` a name that no file of the
#: tree has; `embedded` code inside of a file: a runtime linked statically, or device code.
NodeKind = Literal["line", "distribution", "file", "python", "library", "embedded"]

#: `asks` a line names a distribution; `requires` a distribution requires another; `holds` a
#: distribution owns a file; `needs` a NEEDED entry (of ELF); `preloads` LD_PRELOAD, ld.so.preload;
#: `dlopen` the name stands in the data of a file; `dlopen-note` its `.note.dlopen` says so;
#: `python` a call in a Python file loads it; `imports` Python code of a distribution imports what
#: another one has and it does not require; `embeds` a file holds code of somebody else.
EdgeKind = Literal[
    "asks",
    "requires",
    "holds",
    "needs",
    "preloads",
    "dlopen",
    "dlopen-note",
    "python",
    "imports",
    "embeds",
]

#: Edges by which the loader itself gets to a file.
LINKS: frozenset[EdgeKind] = frozenset({"needs", "preloads"})
#: Edges by which a program may get to a file when it runs.
OPENS: frozenset[EdgeKind] = frozenset({"dlopen", "dlopen-note", "python"})


@dataclass(frozen=True, slots=True)
class Embedded:
    """Code of somebody else inside of a file, with what proves it."""

    #: `static` or `device-code`.
    kind: str
    vendor: str
    backend: str
    #: Linked code: `cudart`; for device code the container's format.
    name: str = field(metadata=IN_MEMORY)
    section: str | None = None
    #: Offset in the file of the first mark or entry.
    offset: int | None = None
    size: int = 0
    architectures: tuple[str, ...] = ()
    #: Marks, sections and names that prove it.
    marks: tuple[str, ...] = ()
    #: The file that holds it.
    path: str = field(kw_only=True)


class Node(Struct, frozen=True):
    """One thing of the graph."""

    #: Unique in a graph: the kind, a colon, and the path, name or `file:line`.
    id: str
    kind: NodeKind
    #: Name for people: `torch 2.9.1`, a path, a soname.
    label: str
    #: Bytes on disk; for distributions of all their files.
    size: int = 0
    #: Id of the distribution that holds it.
    owner: str | None = None
    #: Index into `Graph.layers`.
    layer: int | None = None
    #: Names by which others know it: file name, soname, links, names without a builder's hash.
    names: tuple[str, ...] = ()
    #: The requirement as it is written, for lines; where a distribution was installed from.
    text: str = ""
    embedded: Embedded | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Relation of `source` to `target` (both ids of nodes)."""

    kind: EdgeKind = field(metadata=key("edge"))
    source: str = field(metadata=IN_MEMORY)
    target: str = field(metadata=IN_MEMORY)
    #: Text: the requirement, the NEEDED entry, the name in the data, the call.
    text: str = field(default="", metadata=key("written"))
    #: Condition of a requirement: its marker, or the extra that somebody asked for.
    condition: str = ""
    #: Search rule of the loader (`facts.loader.Rule`), for links that were found.
    rule: str | None = None
    #: Path of the binary whose RPATH or RUNPATH led there; for `loaded` the first that asked.
    by: str | None = None
    #: The folder in which the loader found it.
    folder: str | None = None
    #: Folders that were searched, where the loader does not find it.
    searched: tuple[str, ...] = ()
    #: `path:line` of the Python statement that loads it.
    at: str | None = None
    #: Byte in the source file at which the name or the code stands.
    offset: int | None = None
    #: False where it happens only if a run, or somebody's choice of an extra, makes it happen.
    certain: bool = True


@dataclass(frozen=True)
class Graph:
    """Everything that is known of one target or tree, joined."""

    #: By id.
    nodes: Mapping[str, Node] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    #: Ids of the nodes that chains begin with, the best kind first: requirement lines; what was
    #: asked for by name when it was installed; what nothing requires; files without an owner.
    roots: tuple[tuple[str, ...], ...] = ()
    layers: tuple[Layer, ...] = ()
    #: For each layer where its instruction stands: `Dockerfile:12`, or of which base image it is;
    #: empty where nothing is known of that.
    places: tuple[str, ...] = ()
    #: Files that a later layer deleted or replaced; they have no nodes.
    buried: tuple[ShadowedFiles, ...] = ()
    #: True if it is of a root file system: what a part of one lacks, the system may have.
    is_root: bool = False
    #: True if it is a saved report's: what it does not have may have been there all the same.
    is_partial: bool = False
    #: Gaps of the graph, one sentence each.
    notes: tuple[str, ...] = ()

    @cached_property
    def out(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by the node that they leave."""
        return _group((edge.source, edge) for edge in self.edges)

    @cached_property
    def into(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by the node that they reach."""
        return _group((edge.target, edge) for edge in self.edges)


def _group(edges: Iterable[tuple[str, Edge]]) -> Mapping[str, tuple[Edge, ...]]:
    grouped: dict[str, list[Edge]] = {}
    for id, edge in edges:
        grouped.setdefault(id, []).append(edge)
    return {key: tuple(value) for key, value in grouped.items()}


def node_id(name: str) -> str:
    """Id of the node of a distribution, by its normalized name."""
    return f"distribution:{name}"


# The answer


class Chain(Struct, frozen=True):
    """One way: a node to begin with, and the edges that lead from it."""

    start: Node
    edges: tuple[Edge, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All nodes, from the start to the end."""
        return (self.start.id, *(edge.target for edge in self.edges))


class Question(Struct, frozen=True):
    """Question, and its meaning in this graph."""

    text: str
    #: `backend`, `vendor`, `path`, `glob`, `distribution` or `name`.
    kind: str
    #: In the order in which answers are shown.
    nodes: tuple[Node, ...]
    #: Names that nearly match, where nothing does.
    near: tuple[str, ...] = ()
    #: Files of that name hidden by a later layer; not searched by backend or vendor.
    buried: tuple[ShadowedFiles, ...] = ()


#: `linked` the loader gets to it; `unfound` something links it, and the loader finds no file in
#: the places it searches, although the tree has one; `missing` something links it, and there is no
#: such file that its processes would have; `opened` a program may open it by its name; `absent` so
#: too, and there is no such file; `embedded` a copy inside of another file; `installed` a
#: distribution; `present` it lies there, and nothing leads to it.
State = Literal[
    "linked", "unfound", "missing", "opened", "absent", "embedded", "installed", "present"
]


class Use(Struct, frozen=True):
    """Symbols that one binary uses from a library it links."""

    #: Path of the binary, and its NEEDED entry.
    binary: str
    needed: str
    #: How many symbols the binary imports that the library defines.
    count: int = 0
    #: The first of them, as people write them; sorted.
    names: tuple[str, ...] = ()
    #: Symbols that the binary needs of the library by their version, and that it does not define.
    lacking: tuple[str, ...] = ()
    #: Why it is not known.
    unread: str | None = None


class AnsweredNode(Struct, frozen=True):
    """One node that was asked about."""

    node: Node
    state: State
    #: The shortest chains that make it so, and whether there are more.
    chains: tuple[Chain, ...]
    more: bool = False
    #: How many chains were found in all; a lower bound where `more` is true.
    count: int = 0
    #: The shortest chain of distributions to its owner, where `chains` go another way.
    brought: Chain | None = None
    #: Distributions beside its owner whose RECORD lists it too; one of them was overwritten.
    claims: tuple[Node, ...] = ()
    #: Edges by which something links it, and those by which something may open it.
    links: tuple[Edge, ...] = ()
    opens: tuple[Edge, ...] = ()
    #: Symbols used by the link of the shortest chain.
    use: Use | None = None
    #: What other links to it are good for; not all of them may have been looked at.
    uses: tuple[Use, ...] = ()


class Answer(Struct, frozen=True):
    """Everything that `why` says."""

    source: str
    question: Question
    subjects: tuple[AnsweredNode, ...]
    graph: Graph
    #: Nodes that were asked about and are not in `subjects`.
    left_out: tuple[Node, ...] = ()
    #: Gaps of the answer, with reasons.
    notes: tuple[str, ...] = ()


# Edges, layers and copies in words: the same in every format


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
