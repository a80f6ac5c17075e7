"""Escaping for GitHub-flavored Markdown: foreign text stays literal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from buildmatrix.base.text import printable
from buildmatrix.judge.model import GateState
from buildmatrix.reports.terminal import WORDS

_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#&~$"})
#: Texts that GitHub and GitLab turn into links: `@name`, `#12`, `https://`.
_CALLS = re.compile(r"((?<!\w)@(?=\w)|#(?=\d)|(?<=\w):(?=//)|(?<!\w)www(?=\.))")

#: Code in a sentence. Nothing in it would be obeyed either, but some look for that in the source.
_QUOTED = re.compile(r"`([^`]*)`")
_CODE = re.compile(r"[^<&@|\\]{1,200}")


def fold(title: str) -> Iterator[str]:
    """Begins a part that is closed until somebody opens it. `title` is plain text."""
    text = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield from ("", f"<details><summary>{text}</summary>", "")


def end() -> Iterator[str]:
    """End of `fold`."""
    yield from ("", "</details>", "")


def state_cell(state: GateState | Literal["accepted"]) -> str:
    """Return the word for a state, in bold type if somebody has to act."""
    return f"**{WORDS[state]}**" if state in ("failed", "undecided") else WORDS[state]


def rich(text: str) -> str:
    """A sentence of ours: what stands between backticks is code, the rest is taken literally.

    In code nothing is interpreted either. A name with backticks is shown as code.
    """
    return "".join(
        f"`{printable(part)}`" if is_code else plain(part) for part, is_code in _parts(text)
    )


def chain(links: Iterable[str]) -> str:
    """A chain from a requirement down to a file, with arrows between its links."""
    return " &rarr; ".join(map(plain, links))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    for place, piece in enumerate(_QUOTED.split(text)):
        is_quoted = place % 2 == 1
        if is_quoted and not _CODE.fullmatch(piece):
            yield f"`{piece}`", False
        else:
            yield piece, is_quoted


def plain(text: str) -> str:
    """Text that Markdown takes literally: names come from untrusted images.

    It mentions no user and becomes no link, as `@types` in a path would in a comment: a person who
    looks for those looks at the text between tags and comments.
    """
    return _CALLS.sub(r"\1<!-- -->", printable(text).translate(_MARKUP))
