"""Items of `explore`, and the lines of a view that show them.

A view may have 100,000 files, and each key makes all of its lines: rows of files are made once, and
filtered as whole lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from buildmatrix.catalogue.leftovers import Leftover
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why import SourceGraph
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    ClosedFile,
    Container,
    Distribution,
    Inventory,
)
from buildmatrix.judge.model import Finding, Verdict

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


class Item(Struct, frozen=True, eq=False):
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


class Holder(Struct, frozen=True):
    """Owner of a file: a distribution, a system package, a leftover, or just its folder."""

    kind: ItemKind
    #: `name==version`, or a path.
    key: str


class Files(Struct, frozen=True):
    """All files with a row, and their holders."""

    #: By path.
    facts: Mapping[str, FileFact]
    rows: Mapping[str, Item]
    holders: Mapping[str, Holder]
    evidence: Mapping[str, tuple[Evidence, ...]]
    distributions: tuple[Distribution, ...]
    #: By `name==version`.
    verdicts: Mapping[str, Verdict]
    leftovers: tuple[Leftover, ...]
    #: Bytes of each holder's files, and vendors declared by `name==version`.
    sizes: Mapping[Holder, int]
    declared: Mapping[str, tuple[str, ...]]
    #: Distributions (`name==version`) that entirely belong to another backend.
    useless: frozenset[str]
    #: Backends that are foreign here.
    foreign: frozenset[str]


class Exploration(Struct, frozen=True):
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
    files: Files
    findings: tuple[Finding, ...] = ()


#: Numbers of `Item`, or its name.
Order = Literal["size", "wasted", "name"]
ORDERS: tuple[Order, ...] = ("size", "wasted", "name")
#: Effect of a later layer on files, in the words of `dive`, to the kind of row.
HIDDEN_BY: Mapping[str, ItemKind] = {"removed": "deleted", "modified": "replaced"}


class Row(NamedTuple):
    """One line: an item and its depth."""

    item: Item
    depth: int
    is_open: bool = False


class Filters(Struct):
    """Filters of a view."""

    text: str = ""
    #: A vendor of the source; empty for all.
    vendor: str = ""
    wasted: bool = False
    #: Hidden kinds of rows: `added`, `removed`, `modified`.
    hidden: set[str] = msgspec.field(default_factory=set)

    @property
    def is_searching(self) -> bool:
        """True if single rows are searched for."""
        return bool(self.text or self.vendor or self.wasted)


class _Criteria(NamedTuple):
    """Criteria for single rows."""

    words: tuple[str, ...]
    vendor: str
    wasted: bool
    #: Hidden kinds of rows, which make no difference to the rest.
    hidden: Collection[str]

    def __bool__(self) -> bool:
        return bool(self.words or self.vendor or self.wasted)


@dataclass(slots=True)
class Listing:
    """The lines of one view, which users open, sort and filter."""

    items: Sequence[Item]
    order: Order = "size"
    #: True until the user sorts: layers have an order of their own.
    is_ordered: bool = False
    #: Bytes of all items.
    size: int = field(init=False)
    opened: set[Item] = field(default_factory=set)
    #: Items closed by the user while a filter holds them open.
    closed: set[Item] = field(default_factory=set)
    #: The rows directly below an item (None: all) while nothing is open.
    _rows: dict[tuple[Item | None, Order], Sequence[Row]] = field(default_factory=dict)
    #: Items without openable children.
    _flat: set[Item | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.size = sum(item.size for item in self.items)
        for order in ORDERS:
            self._below(None, 0, order)
        self._prepare(self.items, 1)

    def rows(self, filters: Filters) -> list[Row]:
        """Return all lines in order."""
        rows: list[Row] = []
        words = tuple(filters.text.casefold().split())
        sought = _Criteria(words, filters.vendor, filters.wasted, filters.hidden)
        if self.is_ordered:
            for item in self.items:
                self._add(rows, Row(item, 0), sought)
        else:
            self._add_below(rows, None, 0, sought)
        return rows

    def toggle(self, item: Item, is_open: bool) -> None:
        """Close an open item, and open a closed one."""
        (self.opened.discard if is_open else self.opened.add)(item)
        (self.closed.add if is_open else self.closed.discard)(item)

    def toggle_all(self) -> None:
        """Close everything; if all is closed, open everything."""
        groups = {item for item in _flatten(self.items) if item.children}
        if self.opened:
            self.opened.clear()
            self.closed = groups
        else:
            self.opened, self.closed = groups, set()

    def _prepare(self, items: Sequence[Item], depth: int) -> None:
        """Make the rows below items now, before a key needs them."""
        for item in items:
            if item.children:
                self._below(item, depth, self.order)
                self._prepare(item.children, depth + 1)

    def _add(self, rows: list[Row], row: Row, sought: _Criteria) -> bool:
        """Add a row and the visible rows below it; return True if any is visible."""
        item = row.item
        if not item.children:
            fitting = _filter_rows((row,), sought)
            rows.extend(fitting)
            return bool(fitting)
        if _is_hidden(item, sought.hidden):
            return False
        # A group that matches by itself shows all its children once opened.
        left = _remaining_criteria(item, sought)
        at = len(rows)
        is_open = item not in self.closed if left else item in self.opened
        rows.append(Row(item, row.depth, is_open))
        if is_open or left:
            holds = self._add_below(rows, item, row.depth + 1, left)
            if left and not holds:
                del rows[at:]
                return False
            if not is_open:
                del rows[at + 1 :]
        return True

    def _add_below(
        self, rows: list[Row], parent: Item | None, depth: int, sought: _Criteria
    ) -> bool:
        """Add the children of an item, or all items for None; return True if any is visible."""
        below = self._below(parent, depth, self.order)
        if parent in self._flat:
            fitting = _filter_rows(below, sought)
            rows.extend(fitting)
            return bool(fitting)
        added = [self._add(rows, row, sought) for row in below]
        return any(added)

    def _below(self, parent: Item | None, depth: int, order: Order) -> Sequence[Row]:
        key = parent, order
        if key not in self._rows:
            if order != "name":
                before = self._below(parent, depth, "name" if order == "size" else "size")
                # The row for the rest is last. Equal rows keep their order, also in reverse.
                self._rows[key] = sorted(
                    before,
                    key=lambda row: -1 if row.item.kind == "rest" else getattr(row.item, order),
                    reverse=True,
                )
            else:
                items = sorted(self.items, key=name_key) if parent is None else parent.children
                self._rows[key] = [Row(item, depth) for item in items]
                if not any(item.children for item in items):
                    self._flat.add(parent)
        return self._rows[key]


def _flatten(items: Sequence[Item]) -> list[Item]:
    found = list(items)
    for item in found:  # grows during the loop
        found.extend(item.children)
    return found


def _is_hidden(item: Item, hidden: Collection[str]) -> bool:
    if item.kind in ("deleted", "replaced"):
        return any(item.kind == kind and name in hidden for name, kind in HIDDEN_BY.items())
    return "added" in hidden and item.kind != "layer"


def _remaining_criteria(item: Item, sought: _Criteria) -> _Criteria:
    """Return the criteria left for children of a group: none if the group meets them itself."""
    if not sought:
        return sought
    is_useless = 0 < item.size <= item.wasted
    return sought._replace(
        words=() if all(word in item.search for word in sought.words) else sought.words,
        vendor="" if item.vendors == (sought.vendor,) else sought.vendor,
        wasted=sought.wasted and not is_useless,
    )


def _filter_rows(rows: Sequence[Row], sought: _Criteria) -> Sequence[Row]:
    """Return the rows, without children, that meet the criteria and are not hidden."""
    for word in sought.words:
        rows = [row for row in rows if word in row.item.search]
    if sought.vendor:
        rows = [row for row in rows if sought.vendor in row.item.vendors]
    if sought.wasted:
        rows = [row for row in rows if row.item.wasted]
    if sought.hidden:
        rows = [row for row in rows if not _is_hidden(row.item, sought.hidden)]
    return rows
