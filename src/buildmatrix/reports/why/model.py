"""The answer of `why`, as data; its formats are pure functions of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from buildmatrix.inventory.model import ShadowedFiles
from buildmatrix.reports.why.graph import Edge, Graph, Node


@dataclass(frozen=True, slots=True)
class Chain:
    """One way: a node to begin with, and the edges that lead from it."""

    start: Node
    edges: tuple[Edge, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All nodes, from the start to the end."""
        return (self.start.id, *(edge.target for edge in self.edges))


@dataclass(frozen=True, slots=True)
class Question:
    """Question, and its meaning in this graph."""

    text: str
    #: `backend`, `vendor`, `path`, `glob`, `distribution` or `name`.
    kind: str
    #: In the order in which answers are shown.
    nodes: tuple[Node, ...]
    #: Names that nearly match, where nothing does.
    near: tuple[str, ...] = ()
    #: What has the name and is hidden by a later layer; not looked for by backend or vendor.
    buried: tuple[ShadowedFiles, ...] = ()


#: `linked` the loader gets to it; `unfound` something links it, and the loader finds no file in
#: the places it searches, although the tree has one; `missing` something links it, and there is no
#: such file that its processes would have; `opened` a program may open it by its name; `absent` so
#: too, and there is no such file; `embedded` a copy inside of another file; `installed` a
#: distribution; `present` it lies there, and nothing leads to it.
State = Literal[
    "linked", "unfound", "missing", "opened", "absent", "embedded", "installed", "present"
]


@dataclass(frozen=True, slots=True)
class Use:
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


@dataclass(frozen=True, slots=True)
class AnsweredNode:
    """One node that was asked about."""

    node: Node
    state: State
    #: The shortest chains that make it so, and whether there are more.
    chains: tuple[Chain, ...]
    more: bool = False
    #: How many chains were found in all; a lower bound where `more` is true.
    count: int = 0
    #: The shortest chain of distributions to whoever holds it, where `chains` go another way.
    brought: Chain | None = None
    #: Distributions beside its owner whose RECORD lists it too; one of them was overwritten.
    claims: tuple[Node, ...] = ()
    #: Edges by which something links it, and those by which something may open it.
    links: tuple[Edge, ...] = ()
    opens: tuple[Edge, ...] = ()
    #: What the link of the shortest chain is good for.
    use: Use | None = None
    #: What other links to it are good for; not all of them may have been looked at.
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that `why` says."""

    source: str
    question: Question
    subjects: tuple[AnsweredNode, ...]
    graph: Graph
    #: Nodes that were asked about and are not in `subjects`.
    left_out: tuple[Node, ...] = ()
    #: What the answer cannot say, and why.
    notes: tuple[str, ...] = ()
