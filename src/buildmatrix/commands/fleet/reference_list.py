"""File of references, one per line: `HOST/NAME:TAG [node-class=NAME] [owner=NAME]`.

`#` begins a comment, at the beginning of a line or behind a space. A reference may occur in several
lines, and so run on several node classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from buildmatrix.commands.fleet.listing import SubjectList, SubjectSettings, normalize_reference
from buildmatrix.commands.fleet.model import Subject
from buildmatrix.errors import Problem, SpecError, UndecidedError, UsageError
from buildmatrix.files import read_at_most
from buildmatrix.text import printable

#: File size limit: half a million long references.
LARGEST = 100_000_000
#: Mistakes shown.
_SHOWN = 20
_COMMENT = re.compile(r"(?:^|\s)#.*")


def read_references(name: str, settings: SubjectSettings) -> SubjectList:
    """Read the references in a file; `-` is standard input.

    Raises `UsageError`, and for mistakes in its lines `SpecError`.
    """
    title = "standard input" if name == "-" else name
    problems: list[Problem] = []
    subjects = tuple(_parse_subjects(read_text(name, title), title, settings, problems))
    if problems:
        raise SpecError(problems[:_SHOWN])
    return SubjectList(subjects=subjects)


def read_text(name: str, title: str) -> str:
    """Read a list as text; `-` is standard input. Raises `UsageError`, with `title` as its name."""
    try:
        data = read_at_most(name, LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{title} cannot be read: {reason}") from error
    if len(data) > LARGEST:
        raise UsageError(f"{title} has more than {LARGEST:,} bytes, which no such list has")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{title} is not UTF-8, so it is no list") from None


def _parse_subjects(
    text: str, title: str, settings: SubjectSettings, problems: list[Problem]
) -> Iterator[Subject]:
    for number, line in enumerate(text.split("\n"), 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        try:
            values = _parse_values(words[1:], settings)
            reference = normalize_reference(words[0])
        except (ValueError, UndecidedError) as error:
            problems.append(Problem(str(error), title, number))
            continue
        yield Subject(
            reference=reference,
            places=(f"{title}:{number}",),
            node_classes=tuple(values["node-class"].split(",")) if "node-class" in values else (),
            owner=values.get("owner", ""),
        )


def _parse_values(words: list[str], settings: SubjectSettings) -> dict[str, str]:
    """Parse `node-class=NAME[,NAME]` and `owner=NAME`. Raises `ValueError`."""
    values: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not value or key not in ("node-class", "owner"):
            raise ValueError(
                f"{printable(word)[:100]!r} is not `node-class=NAME` or `owner=NAME`, which are "
                "what can follow a reference"
            )
        if key in values:
            raise ValueError(f"`{key}` is there twice; write `node-class=NAME,NAME` for several")
        values[key] = value
    names = {item.name for item in settings.node_classes}
    for name in values.get("node-class", "").split(","):
        if name and name not in names:
            raise ValueError(
                f"there is no node class `{printable(name)[:100]}`{_describe_choice(names)}"
            )
    return values


def _describe_choice(names: set[str]) -> str:
    from buildmatrix.phrases import listing

    if not names:
        return "; describe it in a specification (-f)"
    return f" in the specification, which has {listing(sorted(names), 8)}"
