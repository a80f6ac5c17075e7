"""Texts of the screen: details and answers as lines of one width, and the help page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buildmatrix.commands.explore.details import Detail
from buildmatrix.commands.explore.lines import BAD, BOLD, PLAIN, WEAK, Piece
from buildmatrix.reports.terminal import wrapped

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
