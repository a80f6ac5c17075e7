"""List of rows with a cursor, and columns of sizes, vendors and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.message import Message
from textual.strip import Strip

from buildmatrix.commands.explore.lines import (
    BAD,
    BOLD,
    HEAD,
    HERE,
    PLAIN,
    VENDOR,
    WEAK,
    Lines,
    Piece,
    make_strip,
)
from buildmatrix.commands.explore.model import Item
from buildmatrix.commands.explore.rows import Order, Row
from buildmatrix.phrases import size

#: Terminal width from which a bar shows a row's share of the whole, and its cells.
WIDE = 100
_BAR = 12
_SIZE, _VENDOR = 9, 9
_BAD_NOTES = ("bloat", "broken")


class Table(Lines, can_focus=True):
    """Rows with a cursor. Keys that change the list belong to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown,d", "page(1)", show=False),
        Binding("pageup,u", "page(-1)", show=False),
        Binding("home,g", "move(-1_000_000_000)", show=False),
        Binding("end,G", "move(1_000_000_000)", show=False),
    ]

    class Moved(Message):
        """The cursor moved to another row."""

    def __init__(self) -> None:
        super().__init__(id="table")
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self._whole = 1
        self._empty = ""

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def put(self, rows: Sequence[Row], whole: int, empty: str) -> None:
        """Show `rows`, with the cursor on the same item as before, if it is still there.

        `whole` is the size that bars refer to, and `empty` is the text without rows.
        """
        item = self.row.item if self.row is not None else None
        self.rows, self._whole, self._empty = rows, max(whole, 1), empty
        self.resize_to(len(rows))
        self.go_to(item)

    def go_to(self, item: Item | None) -> None:
        """Move the cursor to the first row of `item`, or leave it near its place."""
        at = next((number for number, row in enumerate(self.rows) if row.item is item), None)
        self.cursor = min(self.cursor, max(len(self.rows) - 1, 0)) if at is None else at
        self._follow()

    def action_move(self, by: int) -> None:
        """Move the cursor by this number of rows."""
        self.cursor = min(max(self.cursor + by, 0), max(len(self.rows) - 1, 0))
        self._follow()

    def action_page(self, by: int) -> None:
        """Move the cursor by this number of screens."""
        self.action_move(by * max(self.size.height - 1, 1))

    def on_click(self, event: Click) -> None:
        """Move the cursor to the row."""
        self.action_move(event.y + self.scroll_offset.y - self.cursor)

    def on_resize(self, _event: Resize) -> None:
        """Keep the cursor visible."""
        self._follow()

    def _follow(self) -> None:
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        """See `Widget.render_line`."""
        at, width = y + self.scroll_offset.y, self.size.width
        if not self.rows and y == 1:
            return make_strip([("  " + self._empty, WEAK)], width)
        if at >= len(self.rows):
            return make_strip((), width)
        style = HERE if at == self.cursor else PLAIN
        return make_strip(_make_pieces(self.rows[at], self._whole, width), width, style)


def make_header(order: Order | None, width: int) -> list[Piece]:
    """Return the column names, with a mark at the one that rows are sorted by, if any."""

    def name(text: str, column: Order) -> str:
        return f"{text}▾" if column == order else text

    bar = f"{'':{_BAR + 1}}" if width >= WIDE else ""
    text = (
        f"{name('size', 'size'):>{_SIZE}} {name('wasted', 'wasted'):>{_SIZE}}  {bar}"
        f"{'vendor':{_VENDOR}} {name('name', 'name')}"
    )
    return [(f"{text:{width}}", HEAD)]


def _make_pieces(row: Row, whole: int, width: int) -> list[Piece]:
    item = row.item
    is_weak = item.kind == "rest"
    wasted = size(item.wasted) if item.wasted else "-"
    pieces: list[Piece] = [
        (f"{size(item.size):>{_SIZE}} ", WEAK if is_weak else PLAIN),
        (f"{wasted:>{_SIZE}}  ", BAD if item.wasted else WEAK),
    ]
    if width >= WIDE:
        pieces += _make_bar(item, whole)
    vendor = item.vendors[0] if item.vendors else ""
    if len(item.vendors) > 1:
        more = f"+{len(item.vendors) - 1}"
        vendor = f"{vendor[: _VENDOR - len(more)]}{more}"
    pieces.append((f"{vendor[:_VENDOR]:{_VENDOR}} ", VENDOR))
    mark = ("▾ " if row.is_open else "▸ ") if item.children else "  "
    pieces.append((f"{'  ' * row.depth}{mark}", WEAK))
    pieces.append((item.name, WEAK if is_weak else BOLD if row.depth == 0 else PLAIN))
    if item.note and item.note != "ok":
        pieces.append((f"  {item.note}", BAD if item.note in _BAD_NOTES else WEAK))
    return pieces


def _make_bar(item: Item, whole: int) -> list[Piece]:
    """Show an item's share of the whole, and the wasted part of it."""
    cells = min(round(_BAR * item.size / whole), _BAR)
    bad = min(round(_BAR * item.wasted / whole), cells)
    return [
        ("█" * bad, BAD),
        ("▒" * (cells - bad), WEAK),
        (" " * (_BAR - cells + 1), PLAIN),
    ]
