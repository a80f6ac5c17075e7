"""Pictures of pages, held against references that a person has looked at.

Another build of the browser draws letters a little differently: so both pictures are made small and
blurred, and a share of their dots may differ. Where something is missing, moved, or has another
color, far more do.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops, ImageFilter

#: A reference has half of the dots in each direction, and so many colors.
_SHRUNK, _COLORS = 2, 255
#: Dots of the compared picture are squares of so many dots of the reference.
_SQUARE, _BLUR = 8, 4
#: What a channel of a dot may differ by, of 255, and the share of dots that may differ by more.
_CHANNEL, _SHARE = 24, 0.03
#: The share that the heights may differ by.
_HEIGHT = 0.01


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a picture is from its reference."""

    #: Of the heights; and of the dots that differ.
    height: float
    share: float

    @property
    def is_too_large(self) -> bool:
        return self.height > _HEIGHT or self.share > _SHARE


def reference_of(shot: bytes) -> Image.Image:
    """A screenshot as references keep it."""
    picture = Image.open(BytesIO(shot)).convert("RGB")
    size = picture.width // _SHRUNK, picture.height // _SHRUNK
    return picture.resize(size, Image.Resampling.BOX).quantize(_COLORS, dither=Image.Dither.NONE)


def save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)


def difference(before: Image.Image, after: Image.Image) -> Difference:
    """How far two pictures of one width are from each other."""
    assert before.width == after.width, (before.size, after.size)
    height = min(before.height, after.height)
    one, other = (_blurred(picture, height) for picture in (before, after))
    changed = ImageChops.difference(one, other)
    # The channel that differs most decides.
    red, green, blue = changed.split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    count = sum(most.histogram()[_CHANNEL + 1 :])
    return Difference(
        abs(before.height - after.height) / max(before.height, after.height),
        count / (most.width * most.height),
    )


def _blurred(picture: Image.Image, height: int) -> Image.Image:
    top = picture.convert("RGB").crop((0, 0, picture.width, height))
    soft = top.filter(ImageFilter.GaussianBlur(_BLUR))
    return soft.resize((top.width // _SQUARE, top.height // _SQUARE), Image.Resampling.BOX)
