"""A section of an answer: rows under headings, or sentences, as every format draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

SectionName: TypeAlias = Literal[
    "missing", "bytes", "causes", "nodes", "reasons", "worst", "running", "owners", "vendors",
    "undecided", "left-out", "drift", "drift-owners", "drift-notes", "notes",
]  # fmt: skip
#: How many rows of a section are shown; all of those that are not named, and no section for 0.
Limits: TypeAlias = Mapping[SectionName, int]

NOBODY = "(nobody named)"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a section."""

    cells: tuple[str, ...]
    #: What shows the images that it is about, on the page that can do that: `owner=search`.
    query: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One answer."""

    name: SectionName
    title: str
    #: A heading for each cell; none for sentences, which are rows of one cell. The last column is
    #: text of any length.
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    #: Columns of numbers.
    numbers: frozenset[int] = frozenset()
    #: The column that says what a row is about; counted from the end where it is negative.
    subject: int = -1
    #: What has to be known to read it; one sentence.
    lead: str = ""
    #: Rows that are not shown.
    more: int = 0

    @property
    def order(self) -> Sequence[int]:
        """The columns as a page has them: what a row is about stands first."""
        every = list(range(len(self.header)))
        return [every.pop(self.subject), *every] if every else every

    @property
    def is_sentences(self) -> bool:
        """True if its rows are sentences."""
        return not self.header


def owner_name(owner: str) -> str:
    """An owner as people read it."""
    return owner or NOBODY


def sentences(name: SectionName, title: str, texts: Iterable[str]) -> Section:
    """A section of sentences."""
    return Section(name, title, (), tuple(Row((text,)) for text in texts))


def shown(made: Iterable[Section], limits: Limits) -> Sequence[Section]:
    """The sections that say something, with as many rows as `limits` say."""
    return [
        _limited(_filled(section), limits)
        for section in made
        if (section.rows or section.lead) and limits.get(section.name) != 0
    ]


def _filled(section: Section) -> Section:
    """A section without the columns in which no row says anything."""
    columns = range(len(section.header))
    kept = [
        column
        for column in columns
        if column in (section.subject % len(columns), columns[-1])
        or any(row.cells[column] not in ("", NOBODY) for row in section.rows)
    ]
    if len(kept) == len(columns):
        return section
    return replace(
        section,
        header=tuple(section.header[column] for column in kept),
        rows=tuple(
            replace(row, cells=tuple(row.cells[column] for column in kept)) for row in section.rows
        ),
        numbers=frozenset(new for new, column in enumerate(kept) if column in section.numbers),
    )


def _limited(section: Section, limits: Limits) -> Section:
    most = limits.get(section.name)
    if most is None or len(section.rows) <= most:
        return section
    return replace(section, rows=section.rows[:most], more=len(section.rows) - most)
