"""What `explore` shows: items in four views, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.graph_cache import SourceGraph
from buildmatrix.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Container,
    Distribution,
    Inventory,
)
from buildmatrix.rules.model import Finding, Verdict

#: `package` one of the system's package manager; `folder` files that nothing installed; `leftover`
#: a cache or package files; `deleted` and `replaced` what a later layer hides; `rest` the bytes
#: that no row is about.
ItemKind = Literal[
    "layer",
    "distribution",
    "package",
    "folder",
    "leftover",
    "vendor",
    "role",
    "file",
    "deleted",
    "replaced",
    "rest",
]
ViewName = Literal["layers", "distributions", "libraries", "vendors"]
VIEWS: tuple[ViewName, ...] = ("layers", "distributions", "libraries", "vendors")

#: A file of the inventory that has a row of its own.
FileFact = Binary | Artefact | Container | ClosedFile


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One row, and the rows below it. All texts are fit to be shown.

    Two items are the same only if they are one object: a name may stand in a view twice.
    """

    kind: ItemKind
    name: str
    #: Bytes, and those of them that are of no use on the backend or that no container sees.
    size: int
    wasted: int = 0
    vendors: tuple[str, ...] = ()
    #: What stands behind the name: the folder of a file, the verdict of a distribution.
    note: str = ""
    #: In the order of their names.
    children: tuple[Item, ...] = ()
    #: What it is about: the path of a file, `name==version`, the number of a layer, a backend.
    key: str = ""
    #: Name and note in lower case, as filters compare them.
    search: str = ""


def by_name(item: Item) -> tuple[bool, str, str]:
    """Sorts items by their names; what no row is about is the last."""
    return item.kind == "rest", item.name.casefold(), item.note


@dataclass(frozen=True, slots=True)
class Exploration:
    """Everything that the screen shows of one SOURCE."""

    #: As answers call it: `dir:/srv/venv`.
    label: str
    #: What its bytes are judged for; None where nothing says it, and nothing is foreign.
    backend: str | None
    size: int
    wasted: int
    views: Mapping[ViewName, tuple[Item, ...]]
    #: Vendors of its files, that of the most bytes first.
    vendors: tuple[str, ...]
    inventory: Inventory
    #: For questions about chains.
    source: SourceGraph
    #: By path.
    files: Mapping[str, FileFact] = field(default_factory=dict)
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    #: By `name==version`.
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
