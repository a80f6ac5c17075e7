"""Parts that HTML pages share: the document, shapes and colors of vendors."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from msgspec import Struct

from buildmatrix.base.text import count, printable, size
from buildmatrix.reports.sections import STATES, state_in, state_word

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from buildmatrix.judge.composition import VendorBytes


# Vendors: names, and colors for those that occur in most images


#: Vendor -> its name. Each has a class of this name in `style.css`.
_NAMES: Mapping[str, str] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
#: Class of files without a vendor.
NO_VENDOR = "no vendor"


def vendor_class(vendor: str) -> str:
    """Class of the style sheet that colors what belongs to a vendor; empty stands for none.

    What a report calls a vendor may be anything: only names that are known here become classes.
    """
    if not vendor:
        return "none"
    return vendor if vendor in _NAMES else "other"


def vendor_name(vendor: str) -> str:
    """A vendor as people write it."""
    return _NAMES.get(vendor, vendor) if vendor else NO_VENDOR


# Bars and treemaps, as rectangles in percent.
#
# Treemaps are squarified: Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000.


class Area(Struct, frozen=True):
    """A rectangle, in the units of the picture that it is a part of."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, left: float, top: float, right: float, bottom: float) -> Area:
        """Return the area inside of margins; never negative."""
        return Area(
            self.x + left,
            self.y + top,
            max(0.0, self.width - left - right),
            max(0.0, self.height - top - bottom),
        )


def lengths(sizes: Sequence[int], whole: int) -> list[tuple[float, float]]:
    """Start and length of the parts of a bar, in percent of `whole`."""
    parts, start = [], 0
    for amount in sizes:
        parts.append((100 * start / whole, 100 * amount / whole) if whole else (0.0, 0.0))
        start += amount
    return parts


class Segment(Struct, frozen=True):
    """A part of a bar, in percent of the longest bar."""

    style: str
    is_wasted: bool
    size: int
    x: float
    width: float
    #: `NVIDIA, wasted: 5.9 GB`
    text: str


class Bar(Struct, frozen=True):
    """The bytes of one thing, by vendor."""

    segments: tuple[Segment, ...]
    size: int
    wasted: int
    #: True if the wasted bytes are a lower bound.
    at_least: bool

    @property
    def text(self) -> str:
        """The whole bar in one sentence."""
        return "; ".join(segment.text for segment in self.segments)

    @property
    def percent(self) -> int:
        """Percentage of it that is wasted."""
        return round(100 * self.wasted / self.size) if self.size else 0


def bar(shares: Sequence[VendorBytes], most: int, *, at_least: bool = False) -> Bar:
    """A bar on a scale that ends at `most`, with wasted bytes last."""
    parts = [(share.vendor, share.size - share.wasted, False) for share in shares]
    parts += [(share.vendor, share.wasted, True) for share in shares]
    parts = [part for part in parts if part[1] > 0]
    places = lengths([bytes_ for _, bytes_, _ in parts], most)
    return Bar(
        tuple(
            Segment(
                vendor_class(vendor),
                is_wasted,
                bytes_,
                x,
                width,
                f"{vendor_name(vendor)}{', wasted' if is_wasted else ''}: {size(bytes_)}",
            )
            for (vendor, bytes_, is_wasted), (x, width) in zip(parts, places, strict=True)
        ),
        sum(share.size for share in shares),
        sum(share.wasted for share in shares),
        at_least,
    )


def squarify(sizes: Sequence[int], area: Area) -> list[Area]:
    """An area for each size, in proportion to it, as near to a square as it gets.

    `sizes` are in descending order, as the layout needs them. All together fill `area`.
    """
    total = sum(sizes)
    if not total:
        return [Area(area.x, area.y, 0.0, 0.0) for _ in sizes]
    areas: list[Area] = []
    left, rest, first = area, total, 0
    while first < len(sizes):
        # Bytes along the shorter side, if the longer one were as long as all bytes that are left.
        side = min(left.width, left.height) / max(left.width, left.height, 1e-300)
        last, row = first + 1, sizes[first]
        worst = _worst(sizes[first], sizes[first], row, rest, side)
        while last < len(sizes):
            longer = _worst(sizes[first], sizes[last], row + sizes[last], rest, side)
            if longer > worst:
                break
            row, worst, last = row + sizes[last], longer, last + 1
        left = _place_row(sizes[first:last], row, rest, left, areas)
        rest, first = rest - row, last
    return areas


def _worst(largest: int, smallest: int, row: int, rest: int, side: float) -> float:
    """The worst ratio of two sides in a row along the shorter side.

    A row of `row` bytes is as deep as its share of `rest`, where the longer side is 1.
    """
    if not row or not smallest or not side:
        return float("inf")
    depth = row / rest
    return max(side * largest / row / depth, depth / (side * smallest / row))


def _place_row(row: Sequence[int], total: int, rest: int, left: Area, areas: list[Area]) -> Area:
    """Add a row along the shorter side; what is left then."""
    share = total / rest if rest else 0.0
    is_column = left.width >= left.height
    depth = (left.width if is_column else left.height) * share
    at = 0
    for amount in row:
        before, part = (at / total, amount / total) if total else (0.0, 0.0)
        areas.append(
            Area(left.x, left.y + left.height * before, depth, left.height * part)
            if is_column
            else Area(left.x + left.width * before, left.y, left.width * part, depth)
        )
        at += amount
    if is_column:
        return Area(left.x + depth, left.y, left.width - depth, left.height)
    return Area(left.x, left.y + depth, left.width, left.height - depth)


# Self-contained HTML pages, as CI artifacts and for printing.
#
# Names and texts come from untrusted images. Jinja2 escapes them, and the page's
# Content-Security-Policy allows no request and only the page's own style and script, by their
# hashes.


#: Variables of each page; see `base.html.j2`.
_STYLE, _SCRIPT = "page/style.css", "page/script.js"


def render(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    filters: Mapping[str, Callable[..., object]] | None = None,
    **values: object,
) -> str:
    """A page from a template that extends `page/base.html.j2`; the same values give the same bytes.

    Args:
        template: its path below `buildmatrix/reports`, such as `page/report.html.j2`.
        styles: style sheets that it has beside the shared one, by such paths.
        scripts: its scripts beside the shared one. Nothing in them may need another page's.
        filters: what its templates write behind a bar, beside `size`, `count` and `rich`; the same
            functions each time.
        values: what the template names. Texts among them are escaped, and shown on one line.

    A template writes no `style` and no `on...` attributes: the policy would stop them.
    """
    from markupsafe import Markup

    environment = _environment(tuple((filters or {}).items()))
    style = "".join(map(_file, (_STYLE, *styles)))
    script = "".join(map(_file, (_SCRIPT, *scripts)))
    return environment.get_template(template).render(
        **values,
        # Our own files, not the document's content.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy="; ".join(
            (
                "default-src 'none'",
                f"style-src '{_digest(style)}'",
                f"script-src '{_digest(script)}'",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
    )


@cache
def _environment(filters: tuple[tuple[str, Callable[..., object]], ...]) -> Environment:
    """Return the template environment, which compiles each template once."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"size": size, "count": count, "rich": rich, "word": state_word}
    environment.filters["state_in"] = state_in
    environment.filters |= {"arrows": lambda text: text.replace(" -> ", " → "), **dict(filters)}
    environment.globals["states"] = STATES
    return environment


def rich(text: str) -> Markup:
    """A message of ours, escaped; what stands between backticks is code."""
    from markupsafe import Markup, escape

    parts = [escape(printable(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )


def _file(path: str) -> str:
    return (resources.files("buildmatrix.reports") / path).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """A hash source of CSP level 3, section 2.3.1."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
