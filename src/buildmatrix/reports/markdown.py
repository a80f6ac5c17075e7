"""Escaping and sections for GitHub-flavored Markdown: foreign text stays literal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from buildmatrix.base.text import printable
from buildmatrix.reports.sections import Item, Row, Section, cut, state_word

_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#&~$"})
#: Texts that GitHub and GitLab turn into links: `@name`, `#12`, `https://`.
_CALLS = re.compile(r"((?<!\w)@(?=\w)|#(?=\d)|(?<=\w):(?=//)|(?<!\w)www(?=\.))")

#: Code in a sentence. Nothing in it would be obeyed either, but some look for that in the source.
_QUOTED = re.compile(r"`([^`]*)`")
_CODE = re.compile(r"[^<&@|\\]{1,200}")


def fold(title: str) -> Iterator[str]:
    """Begins a part that is closed until somebody opens it. `title` is plain text."""
    text = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("-&gt;", "&rarr;")
    yield from ("", f"<details><summary>{text}</summary>", "")


def end() -> Iterator[str]:
    """End of `fold`."""
    yield from ("", "</details>", "")


def state_cell(state: str) -> str:
    """Return the word for a state, in bold type if somebody has to act."""
    word, remark, text = state_word(state).partition(" (")
    mark = "**" if word in ("failed", "undecided") else ""
    return f"{mark}{plain(word)}{mark}{plain(remark + text)}"


def rich(text: str) -> str:
    """A sentence of ours: what stands between backticks is code, the rest is taken literally.

    In code nothing is interpreted either. A name with backticks is shown as code.
    """
    parts = []
    for place, piece in enumerate(_QUOTED.split(text)):
        if place % 2 == 0:
            parts.append(plain(piece))
        else:
            parts.append(f"`{printable(piece)}`" if _CODE.fullmatch(piece) else plain(f"`{piece}`"))
    return "".join(parts)


def plain(text: str) -> str:
    """Text that Markdown takes literally: names come from untrusted images.

    It mentions no user and becomes no link, as `@types` in a path would in a comment: a person who
    looks for those looks at the text between tags and comments.
    """
    return _CALLS.sub(r"\1<!-- -->", printable(text).translate(_MARKUP))


# Sections


def draw(sections: Iterable[Section], length: int | None = None) -> Iterator[str]:
    """Lines of sections, with at most `length` characters of a text."""
    for section in sections:
        yield from _section(section, length)


def _section(section: Section, length: int | None) -> Iterator[str]:
    title = f"**{plain(section.title)}**{section.shown}"
    is_table = bool(section.header and section.rows)
    if section.is_folded:
        yield from fold(section.title + section.shown)
    elif section.lead:
        yield from (f"{title}: {plain(section.lead)}", "")
    elif section.title and not is_table:
        yield from (title, "")
    if is_table:
        first, *others = section.order
        names = [plain(name) if section.is_headed else "" for name in section.header]
        # The title heads the column of the subject, to save a line.
        is_titled = section.lead or section.is_folded or not section.title
        head = names[first] if is_titled else title
        yield _line([head, *(names[column] for column in others)])
        yield "|---" + "".join("|---:" if n in section.numbers else "|---" for n in others) + "|"
        yield from (_row(section, row, length) for row in section.rows)
    else:
        yield from (f"- {rich(cut(row.cells[0], length))}" for row in section.rows)
    for item in section.items:
        yield from draw_item(item)
    yield from end() if section.is_folded else ("",)


def _row(section: Section, row: Row, length: int | None) -> str:
    cells = [
        state_cell(text)
        if column in section.states
        else rich(cut(text, length)).replace(" -\\> ", " &rarr; ")
        for column, text in enumerate(row.cells)
    ]
    first, *others = (cells[column] for column in section.order)
    sign = f"{plain(row.sign)} " if row.sign else ""
    return _line([sign + (f"**{first}**" if row.is_loud else first), *others])


def draw_item(item: Item) -> Iterator[str]:
    """The lines of an item of a list."""
    before = f"{plain(item.before)} &rarr; " if item.before else ""
    state = f"{item.change} {before}{plain(item.state)}".lstrip()
    where = f" in {plain(item.where)}" if item.where else ""
    text = f": {rich(item.text)}" if item.text else ""
    yield f"- **{state} {plain(item.code)}** {plain(item.name)}{where}{text}"
    for text in (
        *map(rich, item.details),
        " &rarr; ".join(map(plain, item.chain)),
        *map(rich, item.remedies),
    ):
        if text:
            yield f"  <br>{text}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
