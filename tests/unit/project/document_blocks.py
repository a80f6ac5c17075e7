"""Fenced blocks of documents, and how each is held to what it says.

A comment in the line above a block says it; `MECHANISMS` has what may stand there. It is no part
of what a reader sees. A block of some languages needs none: see `test_every_block.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
#: Figures that are others elsewhere or tomorrow: `, where "2.32.3" "305.1 MB" vary`.
_VARYING = r"(?:, where (?P<varying>.+) vary)?"
#: How each kind of comment begins, and what holds a block that has one.
MECHANISMS = {
    # What a command prints in a folder of `documents`: test_printed_blocks.py.
    "printed in": rf"printed in (?P<folder>[\w-]+)(?: by: (?P<command>.+?))?{_VARYING}",
    # Command lines that run there, one after the other: test_printed_blocks.py.
    "played in": r"played in (?P<folder>[\w-]+)(?:, exit codes? (?P<codes>[\d, ]+))?",
    # A file that is there while they run.
    "file of": r"file of (?P<folder>[\w-]+): (?P<path>\S+)",
    # A test that reads the document.
    "checked by": rf"checked by (?P<test>tests/\S+\.py){_VARYING}",
    # A picture made of letters.
    "drawing": r"drawing",
    # Why it runs nowhere; its command lines are still held by test_command_lines_in_documents.py.
    "not run": r"not run: needs (?P<reason>\S.*)",
}
_FENCED = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<marker>[^\n]+?) -->\n(?P=indent))?"
    r"(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class DocumentBlock:
    """A fenced block; `text` without the indent of its fence."""

    document: str
    line: int
    language: str
    marker: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def varying(self) -> tuple[str, ...]:
        """Figures that may be others of the same shape, as the comment says."""
        return tuple(re.findall(r'"([^"]+)"', self.marker.partition(", where ")[2]))

    def marked(self, kind: str) -> re.Match[str] | None:
        """What its comment says, where that is of this kind."""
        return re.fullmatch(MECHANISMS[kind], self.marker)


def with_figures(pattern: str, figures: Iterable[str]) -> str:
    """An escaped text as a pattern in which the digits of these figures may be others."""
    for figure in figures:
        digits = re.sub(r"\d+", r"\\d+", re.escape(figure))
        pattern = pattern.replace(re.escape(figure), digits)
    return pattern


def blocks_of(path: Path) -> list[DocumentBlock]:
    """All fenced blocks of a document, with the line of each fence."""
    text = path.read_text(encoding="utf-8")
    return [
        DocumentBlock(
            path.relative_to(ROOT).as_posix(),
            text.count("\n", 0, match.start("fence")) + 1,
            match["language"].strip(),
            match["marker"] or "",
            dedent(match["text"]),
        )
        for match in _FENCED.finditer(text)
    ]


#: The README and every page but those that are made of the code (docs/_extensions/reference.py).
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in ROOT.glob("docs/**/*.md") if "reference" not in path.parts),
]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
