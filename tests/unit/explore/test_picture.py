"""The picture of docs/explore.md shows what the screen shows today."""

from __future__ import annotations

import re
from html import unescape

from scripts.explore_picture import PICTURE, picture


def _words(svg: str) -> list[str]:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return unescape(" ".join(texts)).replace("\xa0", " ").split()


def test_the_picture_is_that_of_the_screen() -> None:
    shown, kept = picture(), PICTURE.read_text()
    assert "gradients" in _words(shown)
    assert _words(kept) == _words(shown), "run `python -m scripts.explore_picture`"


def test_the_picture_asks_no_server_for_anything() -> None:
    text = PICTURE.read_text()
    assert "url(http" not in text and "@import" not in text and "<script" not in text
