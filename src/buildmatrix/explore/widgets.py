"""Parts of the screen: lines, the table with its cursor, and pages of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.worker import get_current_worker

from buildmatrix.base.text import size
from buildmatrix.explore.details import Detail
from buildmatrix.explore.model import Item, Order, Row
from buildmatrix.reports.terminal import wrapped

#: Colors of the terminal's own palette, so that 16 are enough, and attributes for terminals
#: without.
PLAIN = Style()
BOLD = Style(bold=True)
WEAK = Style(dim=True)
BAD = Style(color="red")
VENDOR = Style(color="cyan")
HEAD = Style(underline=True)
HERE = Style(reverse=True)

#: A piece of text and its style. The text is never parsed, so markup has no effect.
Piece = tuple[str, Style]


def make_strip(pieces: Sequence[Piece], width: int, style: Style = PLAIN) -> Strip:
    """Make one line of `width` cells; excess text is cut and ends with `…`."""
    segments: list[Segment] = []
    left = width
    for text, own in pieces:
        if left <= 0:
            break
        cells = cell_len(text)
        if cells > left:
            text, cells = set_cell_size(text, left - 1) + "…", left
        # A row under the cursor is one block, not broken up by colors.
        segments.append(
            Segment(text, style + Style(bold=own.bold) if style.reverse else own + style)
        )
        left -= cells
    if left > 0:
        segments.append(Segment(" " * left, style))
    return Strip(segments, width)


def align(left: Sequence[Piece], right: Sequence[Piece], width: int) -> list[Piece]:
    """Put `left` at the left and `right` at the right; the left one is shortened if needed."""
    room = width - sum(cell_len(text) for text, _ in right)
    if room <= 0:
        return [*right]
    return [*((part.text, part.style or PLAIN) for part in make_strip(left, room)), *right]


class Lines(ScrollView):
    """Lines that are made when they are shown; set them with `show`."""

    def __init__(self, id: str | None = None, *, style: Style = PLAIN) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Sequence[Piece]] = ()
        self._style = style

    def show(self, lines: Sequence[Sequence[Piece]]) -> None:
        """Replace all lines with `lines`, and scroll to the first."""
        self._lines = lines
        self.resize_to(len(lines))
        self.scroll_to(y=0, animate=False, immediate=True)
        self.refresh()

    def resize_to(self, count: int) -> None:
        """Set the number of lines."""
        self.virtual_size = Size(0, count)

    def render_line(self, y: int) -> Strip:
        """Render a visible line; see `Widget.render_line`."""
        width, at = self.size.width, y + self.scroll_offset.y
        pieces = self._lines[at] if at < len(self._lines) else ()
        return make_strip(pieces, width, self._style)


class Pages(Lines, can_focus=True):
    """Lines of a text, with the keys of pagers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll_down", show=False),
        Binding("up,k", "scroll_up", show=False),
        Binding("pagedown,d,space", "page_down", show=False),
        Binding("pageup,u", "page_up", show=False),
        Binding("home,g", "scroll_home", show=False),
        Binding("end,G", "scroll_end", show=False),
    ]


class Bar(Lines):
    """One line that never scrolls and is remade for each width."""

    def __init__(self, id: str, *, style: Style = PLAIN) -> None:
        super().__init__(id=id, style=style)
        self._left: Sequence[Piece] = ()
        self._right: Sequence[Piece] = ()

    def put(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        """Set its texts."""
        self._left, self._right = left, right
        if self.size.width:
            self.show([align(left, right, self.size.width)])

    def on_resize(self, event: Resize) -> None:
        """Remake it for its new width."""
        self.show([align(self._left, self._right, event.size.width)])


# Rows: cursor, and columns of sizes, vendors and names


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
    return [("█" * bad, BAD), ("▒" * (cells - bad), WEAK), (" " * (_BAR - cells + 1), PLAIN)]


# Texts: details and answers as lines of one width, and the help page


_NAME = 12
_TONES = {"": PLAIN, "bad": BAD, "weak": WEAK}

HELP = """\
Move
  up down, k j          one row up or down
  PageUp PageDown, u d  one screen up or down
  Home End, g G         the first row, the last row
  Tab, Shift+Tab, 1-4   layers, distributions, libraries, vendors

Open
  Space, right left     open a row, close it
  Ctrl+Space            close all rows, or open all
  Enter                 open a row; of a file, all that is known of it
  K J                   scroll what is known of the row
  w                     why: the chains from a requirement to it (a: all)
  W                     why, for a name that you type: libcudart, torch, cuda

Choose
  Ctrl+F, /             filter by name, folder, verdict; Esc ends it
  v                     only one vendor, then the next one
  x                     only what is wasted
  s                     sort by size, by wasted bytes, by name
  Ctrl+A                layers: hide and show files that containers see
  Ctrl+R                layers: hide and show what a later layer deleted
  m                     layers: hide and show what a later layer replaced
                        (dive's Ctrl+M, which terminals send for Enter)

  !                     what could not be read, and what is not known
  ?                     this page
  q, Ctrl+C             end

Wasted
  bytes that belong to another vendor than the backend does, caches, and
  files that a later layer deletes or replaces
"""


def format_details(details: Iterable[Detail], width: int) -> list[list[Piece]]:
    """Return fields with their names at the left, wrapped at `width` columns."""
    lines: list[list[Piece]] = []
    for detail in details:
        room = max(width - _NAME - 1, 20)
        texts = wrapped(detail.text, room) or [""]
        for number, text in enumerate(texts):
            name = detail.name if not number else ""
            for part in _split(text, room):
                lines.append([(f"{name:{_NAME}} ", WEAK), (part, _TONES[detail.tone])])
                name = ""
    return lines


def _split(text: str, width: int) -> Sequence[str]:
    """Split a word that is longer than a line."""
    return [text[at : at + width] for at in range(0, len(text), width)] or [""]


def format_paragraphs(text: str, width: int) -> list[list[Piece]]:
    """Return text that has lines already; paragraph heads without indent are bold."""
    lines: list[list[Piece]] = []
    for line in text.splitlines():
        is_head = bool(line) and not line.startswith(" ")
        for part in _split(line, max(width, 20)):
            lines.append([(part, BOLD if is_head else PLAIN)])
    return lines


# Pages of text


#: Text of a page that is still being made.
WAITING = "Looking for the chains; Esc goes back."
#: Columns of a page without text: padding, and the scroll bar.
MARGIN = 3

#: Function that returns the lines of a text for a width.
Text = Callable[[int], Sequence[Sequence[Piece]]]


def format_keys(keys: Sequence[tuple[str, str]]) -> list[Piece]:
    """Return keys with their actions, for the last line of the screen."""
    pieces: list[Piece] = []
    for key, name in keys:
        pieces += [(f" {key} ", BOLD), (f"{name} ", WEAK)]
    return pieces


class Page(Screen[None]):
    """One page of text over the whole screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,left,h,enter,backspace,question_mark", "close", show=False),
        Binding("a", "all", show=False),
    ]

    def __init__(
        self, title: str, text: Text, everything: Text | None = None, *, is_slow: bool = False
    ) -> None:
        """Make a page; the key `a` shows `everything` instead. A thread makes `is_slow` texts."""
        super().__init__()
        self._title, self._text, self._everything = title, text, everything
        self._is_slow = is_slow

    def compose(self) -> ComposeResult:
        """Compose the title, the text and the keys."""
        yield Bar("title", style=HEAD)
        yield Pages("page")
        yield Bar("keys")

    def on_mount(self) -> None:
        """Fill the page."""
        self.query_one("#title", Bar).put([(self._title, BOLD)])
        self._show_keys()
        self.query_one(Pages).focus()

    def on_resize(self, event: Resize) -> None:
        """Wrap the text for the new width."""
        self._show(event.size.width - MARGIN)

    def _show_keys(self) -> None:
        more = [("a", "all chains")] if self._everything is not None else []
        keys = format_keys([("Esc", "back"), ("↑ ↓ PgUp PgDn", "scroll"), *more])
        self.query_one("#keys", Bar).put(keys)

    def _show(self, width: int) -> None:
        if not self._is_slow:
            self.query_one(Pages).show(self._text(width))
            return
        self.query_one(Pages).show([[(WAITING, WEAK)]])
        # The previous one has another width, or shows less.
        self.run_worker(partial(self._make_text, self._text, width), thread=True, exclusive=True)

    def _make_text(self, text: Text, width: int) -> None:
        """Make the text, in a thread, and show it if it is still wanted."""
        worker, lines = get_current_worker(), text(width)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._put, lines)

    def _put(self, lines: Sequence[Sequence[Piece]]) -> None:
        if self.is_attached:
            self.query_one(Pages).show(lines)

    def action_close(self) -> None:
        """Go back."""
        self.dismiss()

    def action_all(self) -> None:
        """Show everything."""
        if self._everything is not None:
            self._text, self._everything = self._everything, None
            self._show(self.size.width - MARGIN)
            self._show_keys()
