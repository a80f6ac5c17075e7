"""Items → the lines of a view: what is open, in which order, and what filters leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from buildmatrix.commands.explore.model import Item, ItemKind

Order = Literal["size", "wasted", "name"]
ORDERS: tuple[Order, ...] = ("size", "wasted", "name")
#: What a later layer did to files, in the words of `dive` → the sort of their rows.
HIDDEN_BY: Mapping[str, ItemKind] = {"removed": "deleted", "modified": "replaced"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line: an item, and how deep it lies."""

    item: Item
    depth: int
    is_open: bool = False


@dataclass(slots=True)
class Filters:
    """What a view leaves out."""

    text: str = ""
    #: A vendor of the source; empty for all.
    vendor: str = ""
    wasted: bool = False
    #: Sorts of rows that are hidden: `added`, `removed`, `modified`.
    hidden: set[str] = field(default_factory=set)

    @property
    def is_searching(self) -> bool:
        """Whether single rows are looked for."""
        return bool(self.text or self.vendor or self.wasted)


class _Sought(NamedTuple):
    """What filters look for in single rows."""

    words: tuple[str, ...]
    vendor: str
    wasted: bool

    def __bool__(self) -> bool:
        return bool(self.words or self.vendor or self.wasted)


@dataclass(slots=True)
class Listing:
    """The lines of one view, which change as somebody opens, sorts and filters them."""

    items: Sequence[Item]
    order: Order = "size"
    #: Layers have an order of their own, until somebody sorts them.
    is_ordered: bool = False
    opened: set[Item] = field(default_factory=set)
    #: What somebody closed while a filter holds it open.
    closed: set[Item] = field(default_factory=set)
    _sorted: dict[tuple[Item | None, Order], Sequence[Item]] = field(default_factory=dict)

    def rows(self, filters: Filters) -> list[Row]:
        """All lines, the first one first."""
        rows: list[Row] = []
        words = tuple(filters.text.casefold().split())
        sought = _Sought(words, filters.vendor, filters.wasted)
        for item in self._in_order(None, self.items):
            self._add(rows, item, 0, sought, filters.hidden)
        return rows

    def toggle(self, item: Item, is_open: bool) -> None:
        """Close an item that is open, and open it otherwise."""
        (self.opened.discard if is_open else self.opened.add)(item)
        (self.closed.add if is_open else self.closed.discard)(item)

    def toggle_all(self) -> None:
        """Close everything; open everything where all is closed."""
        groups = {item for item in _everything(self.items) if item.children}
        if self.opened:
            self.opened.clear()
            self.closed = groups
        else:
            self.opened, self.closed = groups, set()

    def _add(
        self, rows: list[Row], item: Item, depth: int, sought: _Sought, hidden: Collection[str]
    ) -> bool:
        """Add an item with what is to be seen below it; says whether anything of it is."""
        if hidden and _is_hidden(item, hidden):
            return False
        if not item.children:
            if not sought or _fits(item, sought):
                rows.append(Row(item, depth))
                return True
            return False
        # A group that is looked for itself shows all that it holds, once it is opened.
        left = _left(item, sought)
        at = len(rows)
        is_open = item not in self.closed if left else item in self.opened
        rows.append(Row(item, depth, is_open))
        if is_open or left:
            holds = False
            for child in self._in_order(item, item.children):
                holds |= self._add(rows, child, depth + 1, left, hidden)
            if left and not holds:
                del rows[at:]
                return False
            if not is_open:
                del rows[at + 1 :]
        return True

    def _in_order(self, parent: Item | None, items: Sequence[Item]) -> Sequence[Item]:
        if parent is None and self.is_ordered:
            return items
        key = parent, self.order
        if key not in self._sorted:
            self._sorted[key] = sorted(items, key=_KEYS[self.order])
        return self._sorted[key]


def _everything(items: Sequence[Item]) -> list[Item]:
    found = list(items)
    for item in found:  # grows while it is walked
        found.extend(item.children)
    return found


def _is_hidden(item: Item, hidden: Collection[str]) -> bool:
    if item.kind in ("deleted", "replaced"):
        return any(item.kind == kind and name in hidden for name, kind in HIDDEN_BY.items())
    return "added" in hidden and item.kind != "layer"


def _left(item: Item, sought: _Sought) -> _Sought:
    """What is still looked for below a group: nothing, where all of it fits the group itself."""
    if not sought:
        return sought
    is_useless = 0 < item.size <= item.wasted
    return _Sought(
        () if all(word in item.search for word in sought.words) else sought.words,
        "" if item.vendors == (sought.vendor,) else sought.vendor,
        sought.wasted and not is_useless,
    )


def _fits(item: Item, sought: _Sought) -> bool:
    """Whether a row with nothing below it is looked for."""
    if sought.wasted and not item.wasted:
        return False
    if sought.vendor and sought.vendor not in item.vendors:
        return False
    return all(word in item.search for word in sought.words)


def _by_size(item: Item) -> tuple[bool, int, str]:
    return item.kind == "rest", -item.size, item.name


def _by_wasted(item: Item) -> tuple[bool, int, int, str]:
    return item.kind == "rest", -item.wasted, -item.size, item.name


def _by_name(item: Item) -> tuple[bool, str, str]:
    return item.kind == "rest", item.name.casefold(), item.note


_KEYS = {"size": _by_size, "wasted": _by_wasted, "name": _by_name}
