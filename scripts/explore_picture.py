"""Draw the picture of docs/explore.md: the screen of `explore` on the image of its tests.

python -m scripts.explore_picture
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "explore.svg"
#: Fonts that Textual's export takes from a server: a picture asks nobody for anything.
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def picture(
    keys: tuple[str, ...] = ("j", "j", "space", "j"), size: tuple[int, int] = (110, 30)
) -> str:
    """The screen after `keys`, as SVG."""
    sys.path.insert(0, str(ROOT / "tests" / "unit" / "explore"))
    from explorecases import exploration

    from buildmatrix.explore.app import ExploreApp

    async def run() -> str:
        app = ExploreApp(exploration(label="docker:acme/inferno:cpu"))
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
            return app.export_screenshot(title="buildmatrix explore docker:acme/inferno:cpu")

    return _FONTS.sub("", asyncio.run(run()))


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture() + "\n")
