"""Textual application of `explore`; it shows facts that were read before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import ClassVar

from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widgets import Input

from buildmatrix.base.text import count, printable, shown, size
from buildmatrix.commands.why import answer_question
from buildmatrix.explore.details import make_details, make_question
from buildmatrix.explore.model import ORDERS, VIEWS, Exploration, Filters, Listing, ViewName
from buildmatrix.explore.widgets import (
    BAD,
    BOLD,
    HELP,
    HERE,
    PLAIN,
    WEAK,
    Bar,
    Lines,
    Page,
    Piece,
    Table,
    format_details,
    format_keys,
    format_paragraphs,
    make_header,
)
from buildmatrix.reports.why import Answer
from buildmatrix.reports.why_text import render

#: Nodes shown in full per answer, and chains per node with all chains on.
SUBJECTS, CHAINS = 12, 50
#: Terminal width from which details are beside the rows.
BESIDE = 120
_TITLES = {name: name.capitalize() for name in VIEWS}
_EMPTY = {
    "layers": "This is not an image: it has no layers. Tab shows the distributions.",
    "distributions": "No distribution.",
    "libraries": "No library.",
    "vendors": "Nothing of a vendor.",
}
_KEYS = (
    ("Tab", "view"),
    ("Spc", "open"),
    ("/", "filter"),
    ("v", "vendor"),
    ("x", "waste"),
    ("s", "sort"),
    ("w", "why"),
)
_LAST_KEYS = (("?", "help"), ("q", "quit"))


class ExploreApp(App[None]):
    """Four views of one SOURCE, with details of the row under the cursor."""

    TITLE = "buildmatrix explore"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    Lines { height: 1fr; background: ansi_default; color: ansi_default; }
    Bar { height: 1; overflow: hidden; }
    #body { height: 1fr; layout: vertical; }
    #table { height: 5fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #details { height: 4fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #page { overflow-x: hidden; scrollbar-size-vertical: 1; padding: 0 1; }
    #rule { height: 1; }
    #body.beside { layout: horizontal; }
    #body.beside #table { width: 3fr; height: 1fr; }
    #body.beside #rule { display: none; }
    #body.beside #details { width: 2fr; height: 1fr; border-left: solid ansi_default; }
    #body.beside #details { padding: 0 1; }
    #prompt { display: none; height: 1; border: none; padding: 0; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("q", "quit", show=False),
        Binding("tab", "view(1)", show=False, priority=True),
        Binding("shift+tab", "view(-1)", show=False, priority=True),
        *(
            Binding(str(number), f"show_view('{name}')", show=False)
            for number, name in enumerate(VIEWS, 1)
        ),
        Binding("space", "fold", show=False),
        Binding("right,l", "open(True)", show=False),
        Binding("left,h", "open(False)", show=False),
        Binding("ctrl+@,ctrl+space", "toggle_all", show=False),
        Binding("enter", "enter", show=False),
        Binding("J", "details(3)", show=False),
        Binding("K", "details(-3)", show=False),
        Binding("w", "why", show=False),
        Binding("W", "ask('why')", show=False, priority=True),
        Binding("ctrl+f,slash", "ask('filter')", show=False, priority=True),
        Binding("escape", "end_filter", show=False),
        Binding("v", "vendor", show=False),
        Binding("x", "wasted", show=False),
        Binding("s", "sort", show=False),
        Binding("ctrl+a", "hide('added')", show=False),
        Binding("ctrl+r", "hide('removed')", show=False),
        Binding("m", "hide('modified')", show=False),
        Binding("exclamation_mark", "unread", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(self, exploration: Exploration) -> None:
        # With NO_COLOR, Textual chooses filters here, before there is a theme.
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._exploration = exploration
        views = exploration.views
        self._listings = {name: Listing(views[name], is_ordered=name == "layers") for name in VIEWS}
        self.view: ViewName = "layers" if views["layers"] else "distributions"
        self.filters = Filters()
        self._asks = "filter"

    def compose(self) -> ComposeResult:
        """Compose title, views, columns, rows, details and keys."""
        yield Bar("title")
        yield Bar("views")
        yield Bar("columns")
        with Container(id="body"):
            yield Table()
            yield Bar("rule")
            yield Lines("details")
        yield Input(id="prompt", compact=True, select_on_focus=False)
        yield Bar("keys")

    def on_mount(self) -> None:
        """Show the first view."""
        self._table.focus()
        self.query_one("#keys", Bar).put(format_keys(_KEYS), format_keys(_LAST_KEYS))
        self._title()
        self._fill()

    def on_resize(self, event: Resize) -> None:
        """Put the details beside the rows if there is room, else below them."""
        self.query_one("#body").set_class(event.size.width >= BESIDE, "beside")
        self.call_after_refresh(self._redraw)

    @property
    def _table(self) -> Table:
        return self.query_one(Table)

    @property
    def _listing(self) -> Listing:
        return self._listings[self.view]

    # Display

    def _title(self) -> None:
        exploration = self._exploration
        right: list[Piece] = [(size(exploration.size), BOLD)]
        if exploration.backend is not None:
            right.append((f" for {exploration.backend}", PLAIN))
            if exploration.wasted:
                right.append((f", {size(exploration.wasted)} wasted", BAD))
        else:
            right.append((" for no backend (--backend)", WEAK))
        unread = len(exploration.inventory.unread)
        if unread:
            right.append((f", {count(unread, 'file')} not read (!)", BAD))
        left = [(f" {exploration.label} ", BOLD)]
        self.query_one("#title", Bar).put(left, [*right, (" ", PLAIN)])

    def _fill(self) -> None:
        rows = self._listing.rows(self.filters)
        empty = "No rows match the filters; Esc clears them."
        if not self._listing.items:
            empty = _EMPTY[self.view]
        elif not self.filters.is_searching and not self.filters.hidden:
            empty = ""
        self._table.put(rows, self._listing.size, empty)
        self._redraw()

    def _redraw(self) -> None:
        pieces: list[Piece] = []
        for number, name in enumerate(VIEWS, 1):
            style = HERE if name == self.view else PLAIN
            pieces += [(f" {number} {_TITLES[name]} ", style), (" ", PLAIN)]
        self.query_one("#views", Bar).put(pieces, [(f"{self._state()} ", WEAK)])
        width = self._table.size.width
        self.query_one("#columns", Bar).put(
            make_header(None if self._listing.is_ordered else self._listing.order, width)
        )
        self._show_details()

    def _state(self) -> str:
        filters = self.filters
        parts = [
            f"/{printable(filters.text)}" if filters.text else "",
            filters.vendor,
            "only wasted" if filters.wasted else "",
            *(f"{name} hidden" for name in sorted(filters.hidden)),
        ]
        return ", ".join(filter(None, parts)) or count(len(self._table.rows), "row")

    def _show_details(self) -> None:
        pane, row = self.query_one("#details", Lines), self._table.row
        width = pane.size.width - 1
        if width <= 0:
            return
        name = row.item.name if row is not None else ""
        room = max(self.size.width - cell_len(name) - 3, 0)
        self.query_one("#rule", Bar).put([("─ ", WEAK), (name, BOLD), (" " + "─" * room, WEAK)])
        lines = (
            format_details(make_details(row.item, self._exploration), width)
            if row is not None
            else []
        )
        if pane.styles.layout is not None and self.query_one("#body").has_class("beside"):
            lines = [[(name, BOLD)], [], *lines]
        pane.show(lines)

    def on_table_moved(self, _event: Table.Moved) -> None:
        """Show the details of the row."""
        self._show_details()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """True if keys with priority over the focused widget apply to the list now.

        They have priority so that the prompt is open when the next key of a fast typist arrives.
        """
        if action in ("ask", "view"):
            return len(self.screen_stack) == 1 and self.focused is self._table
        return super().check_action(action, parameters)

    def action_view(self, by: int) -> None:
        """Switch to the next or previous view."""
        self.action_show_view(VIEWS[(VIEWS.index(self.view) + by) % len(VIEWS)])

    def action_show_view(self, name: ViewName) -> None:
        """Switch to another view, with the same filters."""
        self.view = name
        self._table.cursor = 0
        self._fill()

    def action_fold(self) -> None:
        """Open or close the row."""
        row = self._table.row
        if row is not None and row.item.children:
            self._listing.toggle(row.item, row.is_open)
            self._fill()

    def action_open(self, wanted: bool) -> None:
        """Open or close the row; closing a leaf goes to its parent."""
        row, table = self._table.row, self._table
        if row is not None and row.item.children and row.is_open != wanted:
            self.action_fold()
        elif row is not None and not wanted and row.depth:
            above = range(table.cursor - 1, -1, -1)
            at = next(number for number in above if table.rows[number].depth < row.depth)
            table.action_move(at - table.cursor)

    def action_toggle_all(self) -> None:
        """Close all rows, or open all."""
        self._listing.toggle_all()
        self._fill()

    def action_enter(self) -> None:
        """Open a group; show all details of a file."""
        row = self._table.row
        if row is None:
            return
        if row.item.children:
            self.action_fold()
            return
        about = make_details(row.item, self._exploration)
        self.push_screen(Page(row.item.name, lambda width: format_details(about, width)))

    def action_details(self, by: int) -> None:
        """Scroll the details."""
        self.query_one("#details", Lines).scroll_relative(y=by, animate=False)

    def action_vendor(self) -> None:
        """Filter by the first vendor, then by the next one, then by none."""
        choices = ["", *self._exploration.vendors]
        self.filters.vendor = choices[(choices.index(self.filters.vendor) + 1) % len(choices)]
        self._fill()

    def action_wasted(self) -> None:
        """Toggle between wasted bytes and everything."""
        self.filters.wasted = not self.filters.wasted
        self._fill()

    def action_sort(self) -> None:
        """Sort by the next order."""
        listing = self._listing
        if listing.is_ordered:
            listing.is_ordered, listing.order = False, "size"
        else:
            listing.order = ORDERS[(ORDERS.index(listing.order) + 1) % len(ORDERS)]
        self._fill()

    def action_hide(self, name: str) -> None:
        """Hide a kind of rows in layers, or show it again."""
        if self.view == "layers":
            self.filters.hidden ^= {name}
            self._fill()

    # Questions

    def action_ask(self, what: str) -> None:
        """Open the prompt for a filter, or for a `why` question."""
        self._asks = what
        prompt = self.query_one(Input)
        prompt.value = self.filters.text if what == "filter" else ""
        prompt.placeholder = (
            "filter: part of a name or a folder; Enter keeps it, Esc ends it"
            if what == "filter"
            else "why: a library, a distribution, a path, a vendor or a backend"
        )
        prompt.display = True
        self.screen.set_focus(prompt)
        prompt.cursor_position = len(prompt.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter during typing."""
        if self._asks == "filter" and event.value != self.filters.text:
            self.filters.text = event.value
            self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, or answer the question."""
        self._close_prompt()
        if self._asks == "filter":
            self.filters.text = event.value
            self._fill()
        elif event.value.strip():
            self._answer(event.value)

    def action_end_filter(self) -> None:
        """Close the prompt; without one, clear the filters."""
        if self.query_one(Input).display:
            self._close_prompt()
            if self._asks == "filter":
                self.filters.text = ""
        else:
            self.filters = Filters()
        self._fill()

    def _close_prompt(self) -> None:
        self.query_one(Input).display = False
        self.screen.set_focus(self._table)

    def action_why(self) -> None:
        """Show why the row is there."""
        row = self._table.row
        text = make_question(row.item, self._exploration) if row is not None else None
        if text is None:
            self.bell()
            return
        self._answer(text)

    def _answer(self, text: str) -> None:
        source = self._exploration.source

        @cache
        def answer(every: bool) -> Answer:
            return answer_question(source, text, every=every, subjects=SUBJECTS, most=CHAINS)

        def chains(every: bool, width: int) -> Sequence[Sequence[Piece]]:
            rendered = render(answer(every), width=width, color=False)
            return format_paragraphs("\n".join(map(printable, rendered.splitlines())), width)

        title = f"why {printable(shown(text))}"
        self.push_screen(Page(title, partial(chains, False), partial(chains, True), is_slow=True))

    def action_unread(self) -> None:
        """Show unread files and unknown facts."""
        unread = [
            f"  {item.path or 'the source'}: {item.why}"
            for item in self._exploration.inventory.unread
        ]
        notes = [f"  {note}" for note in self._exploration.source.graph.notes]
        text = "\n".join(
            printable(shown(line))
            for line in (
                "Not read",
                *(unread or ["  nothing: everything was read"]),
                "",
                "Not known",
                *(notes or ["  nothing"]),
            )
        )
        self.push_screen(Page("not read", lambda width: format_paragraphs(text, width)))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Page("keys", lambda width: format_paragraphs(HELP, width)))
