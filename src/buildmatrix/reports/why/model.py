"""The graph of files and distributions that `why` searches, its questions and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from msgspec import Struct

from buildmatrix.facts.inventory.model import Layer, ShadowedFiles
from buildmatrix.judge.model import IN_MEMORY
from buildmatrix.reports.json_form import key

# The joined graph: immutable, built by `commands.why.graph`.
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
    #: Search rule of the loader (`facts.loader.resolver.Rule`), for links that were found.
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
