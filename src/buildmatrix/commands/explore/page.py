"""A page of text over the screen of `explore`: chains, details of a file, the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.worker import get_current_worker

from buildmatrix.commands.explore.lines import BOLD, HEAD, WEAK, Bar, Pages, Piece

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
        keys = [("Esc", "back"), ("↑ ↓ PgUp PgDn", "scroll")]
        if self._everything is not None:
            keys.append(("a", "all chains"))
        self.query_one("#keys", Bar).put(format_keys(keys))
        self.query_one(Pages).focus()

    def on_resize(self, event: Resize) -> None:
        """Wrap the text for the new width."""
        self._show(event.size.width - MARGIN)

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
            self.query_one("#keys", Bar).put(
                format_keys([("Esc", "back"), ("↑ ↓ PgUp PgDn", "scroll")])
            )
