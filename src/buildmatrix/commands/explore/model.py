"""Items of `explore` in four views, with details."""

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

#: `package` is a system package; `folder` files that nothing installed; `leftover` a cache or
#: package files; `deleted` and `replaced` files hidden by a later layer; `rest` the bytes without a
#: row.
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
    """One row, and the rows below it. All texts are safe to display.

    Items are compared by identity: a view may have the same name twice.
    """

    kind: ItemKind
    name: str
    #: Bytes, and those among them that the backend cannot use or that no container sees.
    size: int
    wasted: int = 0
    vendors: tuple[str, ...] = ()
    #: Text behind the name: the folder of a file, the verdict of a distribution.
    note: str = ""
    #: Sorted by name.
    children: tuple[Item, ...] = ()
    #: Subject: the path of a file, `name==version`, the number of a layer, a backend.
    key: str = ""
    #: Name and note in lower case, for filters.
    search: str = ""


def name_key(item: Item) -> tuple[bool, str, str]:
    """Return the key that sorts items by name, with the row for the rest last."""
    return item.kind == "rest", item.name.casefold(), item.note


@dataclass(frozen=True, slots=True)
class Exploration:
    """All data that the screen shows of one SOURCE."""

    #: Label in answers: `dir:/srv/venv`.
    label: str
    #: Backend that its bytes are judged for; None if unknown, and then nothing is foreign.
    backend: str | None
    size: int
    wasted: int
    views: Mapping[ViewName, tuple[Item, ...]]
    #: Vendors of its files, by decreasing bytes.
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
