"""Lines on the screen; only visible lines are made, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

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
