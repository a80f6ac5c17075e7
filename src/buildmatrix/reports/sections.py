"""A report as sections, which every renderer draws: terminal, Markdown and HTML.

Renderers are `terminal.draw`, `markdown.draw` and the macros of `page/parts.html.j2`. They know
nothing of what a report is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import size

# States: one table for all reports


#: Also a class of the style sheet.
Mood: TypeAlias = Literal["good", "fair", "undecided", "bad", "note", "not-run", "accepted"]
#: State in a report → its mood.
STATES: Mapping[str, Mood] = {
    # Gates, rungs, checks and images.
    "passed": "good", "failed": "bad", "undecided": "undecided", "not-run": "not-run",
    "accepted": "accepted",
    # Findings, and what became of them.
    "error": "bad", "warning": "fair", "note": "note", "waived": "accepted", "new": "note",
    "changed": "fair", "gone": "not-run", "worse": "bad", "better": "good",
    # Distributions.
    "optional": "note", "bloat": "fair", "broken": "bad",
    # Images on node classes, and node classes.
    "ok": "good", "minor-version": "fair", "compat-package": "fair", "jit": "fair",
    "refused": "bad", "drift": "bad", "no-nodes": "undecided",
    # Tags.
    "moved": "good", "already": "good", "not-tried": "not-run",
}  # fmt: skip


_WORDS = {"not-run": "not run", "not-tried": "not tried", "no-nodes": "no nodes"}


def state_in(cell: str) -> str:
    """The state in a cell such as `refused (CODE)`; empty for none."""
    state = cell.partition(" (")[0]
    return state if state in STATES else ""


def state_word(state: str) -> str:
    """A state as people read it."""
    state, remark, text = state.partition(" (")
    return _WORDS.get(state, state) + remark + text


# Texts


def signed_size(number: int) -> str:
    """Bytes with a sign: `+1.2 MB`."""
    return f"{'-' if number < 0 else '+'}{size(abs(number))}"


def cut(text: str, most: int | None) -> str:
    """A text of at most `most` characters, which says where it was cut; all of it for None."""
    return text if most is None or len(text) <= most else f"{text[: most - 4]} ..."


# Sections: rows under headings, sentences, or items


class Row(Struct, frozen=True):
    """One line of a table."""

    cells: tuple[str, ...]
    #: What shows the images that it is about, on the page that can do that: `owner=search`.
    query: str = ""
    #: Sign in front of the row: `+`, `-` or `~`.
    sign: str = ""
    is_loud: bool = False


class Item(Struct, frozen=True):
    """A thing with what there is to say about it, such as a finding."""

    #: Its state, such as a severity; and what that was before.
    state: str
    code: str
    name: str
    label: str = ""
    #: One sentence, and further ones.
    text: str = ""
    details: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    #: What to do about it, or why nothing is to be done.
    remedies: tuple[str, ...] = ()
    before: str = ""
    #: What became of it: `new`, `gone`.
    change: str = ""
    #: What it is about, where its section does not say that.
    where: str = ""


class Section(Struct, frozen=True):
    """One answer."""

    name: str
    title: str
    #: A heading for each cell; none for sentences, which are rows of one cell. The last column is
    #: text of any length.
    header: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    #: Columns of numbers, and of states: `refused`, or `refused (CODE)`.
    numbers: frozenset[int] = frozenset()
    states: frozenset[int] = frozenset()
    #: Widths of columns in a terminal at least, so that tables of several runs are alike.
    widths: tuple[int, ...] = ()
    #: The column that says what a row is about; counted from the end where it is negative.
    subject: int = -1
    #: Explanation, in one sentence.
    lead: str = ""
    #: Rows or items that are not shown.
    more: int = 0
    items: tuple[Item, ...] = ()
    #: True if Markdown folds it.
    is_folded: bool = False
    #: False if rows need no headings but on a page.
    is_headed: bool = True

    @property
    def order(self) -> Sequence[int]:
        """The columns as a page has them: what a row is about stands first."""
        every = list(range(len(self.header)))
        return [every.pop(self.subject), *every] if every else every

    @property
    def shown(self) -> str:
        """How many of its rows and items are shown, if these are not all: ` (3 of 12)`."""
        number = len(self.rows) + len(self.items)
        return f" ({number} of {number + self.more})" if self.more else ""

    @property
    def is_sentences(self) -> bool:
        """True if its rows are sentences."""
        return not self.header


def sentences(name: str, title: str, texts: Iterable[str], most: int | None = None) -> Section:
    """A section of sentences, `most` of them."""
    return limit(Section(name, title, rows=tuple(Row((text,)) for text in texts)), most)


def limit(section: Section, most: int | None) -> Section:
    """A section with so many rows and items; all for None."""
    if most is None or max(len(section.rows), len(section.items)) <= most:
        return section
    more = len(section.rows) + len(section.items) - most
    return replace(section, rows=section.rows[:most], items=section.items[:most], more=more)


def drop_empty_columns(section: Section, empty: str = "") -> Section:
    """A section without the columns in which no row says anything, or only `empty`."""
    columns = range(len(section.header))
    kept = [
        column
        for column in columns
        if column == section.subject % len(columns)
        or any(row.cells[column] not in ("", empty) for row in section.rows)
    ]
    if len(kept) == len(columns):
        return section
    return replace(
        section,
        header=tuple(section.header[column] for column in kept),
        rows=tuple(
            replace(row, cells=tuple(row.cells[column] for column in kept)) for row in section.rows
        ),
        numbers=frozenset(kept.index(column) for column in section.numbers & {*kept}),
        states=frozenset(kept.index(column) for column in section.states & {*kept}),
        subject=kept.index(section.subject % len(columns)),
    )


def filled(*sections: Section) -> list[Section]:
    """The sections that say something."""
    return [section for section in sections if section.rows or section.items or section.lead]
