"""Bytes of targets as bars, areas and strips of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.text import count, size
from buildmatrix.judge.composition import Composition, DistributionBytes, LayerBytes, VendorBytes
from buildmatrix.judge.model import TargetResult
from buildmatrix.reports.page import Area, Bar, bar, lengths, squarify, vendor_class, vendor_name

# Used and wasted bytes by vendor, as bars and in words


def bars(targets: Sequence[TargetResult]) -> Mapping[str, Bar]:
    """A bar for each target whose bytes are known, by its id."""
    shares = {target.id: vendor_bytes(target) for target in targets}
    most = max((sum(share.size for share in parts) for parts in shares.values()), default=0)
    return {
        target.id: bar(
            shares[target.id],
            most,
            at_least=target.audit is not None and target.audit.foreign_at_least,
        )
        for target in targets
        if shares[target.id]
    }


def vendor_bytes(target: TargetResult) -> Sequence[VendorBytes]:
    """Return the bytes of each vendor in a target, the largest first, those without one before all.

    Of a report of earlier versions only the sums are known, and not whose they are.
    """
    if target.composition is None:
        if target.audit is not None and target.audit.installed:
            return [VendorBytes("", target.audit.installed, target.audit.foreign_installed)]
        return [VendorBytes("", target.size)] if target.size else []
    sizes, wasted = Counter[str](), Counter[str]()
    for part in target.composition.distributions:
        for share in part.vendors:
            sizes[share.vendor] += max(0, share.size)
            wasted[share.vendor] += min(max(0, share.wasted), max(0, share.size))
    return sorted(
        (VendorBytes(vendor, size, wasted[vendor]) for vendor, size in sizes.items() if size),
        key=lambda share: (share.vendor != "", -share.size, share.vendor),
    )


# Bytes of a target by requirement line, distribution and file, as areas.
#
# Widths are in percent of the picture, heights in pixels, so that text keeps its size on any
# screen. Areas are laid out for a screen of `_WIDTH` pixels.


_WIDTH, _HEIGHT = 1200.0, 460.0
#: Width of the picture on a phone, in pixels.
_NARROW = 300.0
#: Height of a group's title.
_TITLE = 22.0
_GAP = 2.0
#: The least share of all bytes that a distribution and a file have to have to be drawn alone.
_LEAST, _LEAST_FILE = 0.004, 0.008
#: Pixels that a text needs.
_LABEL_WIDTH, _LABEL_HEIGHT, _TWO_LINES, _CHARACTER = 44.0, 17.0, 34.0, 7.8


class Leaf(Struct, frozen=True):
    """A file, or the rest of a distribution."""

    area: Area
    style: str
    #: Width of the part that is that vendor's, from the left, and of what is wasted.
    held: float
    wasted: float
    #: Path and size of a file; empty for the rest.
    text: str = ""


class Cell(Struct, frozen=True):
    """A distribution, or the small ones together."""

    area: Area
    leaves: tuple[Leaf, ...]
    #: Lines that fit into it.
    label: tuple[str, ...]
    #: Pixels that what is below them is covered by; 0 where that is of one color.
    plate: int
    #: True if the label needs a wide screen.
    is_narrow: bool
    text: str
    #: Row of the table that says the same; None for several, and for what takes no room.
    row: int | None


class Block(Struct, frozen=True):
    """Packages of one requirement line; the only one has no title."""

    area: Area
    title: str
    #: True if the title needs a wide screen.
    is_narrow: bool
    cells: tuple[Cell, ...]


class Treemap(Struct, frozen=True):
    """One target, or several whose bytes are the same."""

    targets: tuple[str, ...]
    height: int
    blocks: tuple[Block, ...]
    #: Rows of the table beside the picture.
    parts: tuple[DistributionBytes, ...]
    size: int
    wasted: int

    @property
    def is_colored(self) -> bool:
        """True if areas differ in color: some bytes are a vendor's, or wasted."""
        return bool(self.wasted) or any(
            share.vendor for part in self.parts for share in part.vendors
        )


def treemap(targets: Sequence[str], composition: Composition) -> Treemap:
    """The picture of targets that have one composition."""
    parts = [part for part in composition.distributions if part.size > 0]
    places = {id(part): place for place, part in enumerate(parts)}
    whole = sum(part.size for part in parts)
    lines: dict[str, list[DistributionBytes]] = {}
    for part in parts:
        lines.setdefault(part.line, []).append(part)
    ordered = sorted(lines.items(), key=lambda item: (-_size(item[1]), item[0]))
    areas = squarify([_size(of_line) for _, of_line in ordered], Area(0, 0, _WIDTH, _HEIGHT))
    return Treemap(
        tuple(targets),
        round(_HEIGHT),
        tuple(
            _block(
                area,
                _titles(line, of_line) if len(ordered) > 1 or line else (),
                of_line,
                whole,
                places,
            )
            for (line, of_line), area in zip(ordered, areas, strict=True)
        ),
        tuple(parts),
        whole,
        sum(min(part.wasted, part.size) for part in parts),
    )


def part_name(part: DistributionBytes) -> str:
    """A distribution with its version, or what belongs to none."""
    return f"{part.name} {part.version}".rstrip() if part.name else "of no distribution"


def vendors_text(part: DistributionBytes) -> str:
    """`NVIDIA 1.2 GB, no vendor 562.4 MB`."""
    return ", ".join(f"{vendor_name(share.vendor)} {size(share.size)}" for share in part.vendors)


def _size(parts: Sequence[DistributionBytes]) -> int:
    return sum(part.size for part in parts)


def _titles(line: str, parts: Sequence[DistributionBytes]) -> Sequence[str]:
    """Return the titles of a block, from the longest to the shortest."""
    if not line:
        return (f"by no requirement line, {size(_size(parts))}", "by no requirement line")
    askers = ", ".join(dict.fromkeys(part.asker for part in parts if part.asker))
    return (f"{line} {askers}, {size(_size(parts))}", f"{line} {askers}", askers or line)


def _block(
    area: Area,
    titles: Sequence[str],
    parts: Sequence[DistributionBytes],
    whole: int,
    places: dict[int, int],
) -> Block:
    fitting = (text for text in titles if _CHARACTER * len(text) + 8 <= area.width)
    title = next(fitting, "") if area.height > 3 * _TITLE else ""
    inner = area.inside(_GAP, _TITLE if title else _GAP, _GAP, _GAP)
    drawn = [part for part in parts if part.size >= _LEAST * whole]
    rest = parts[len(drawn) :]
    if len(rest) == 1:
        drawn, rest = list(parts), []
    sizes = [part.size for part in drawn]
    # The small ones together may be more than some of the others: they keep their place, the last.
    areas = squarify([*sizes, *([_size(rest)] if rest else [])], inner)
    cells = [
        _cell(part, cell, whole, places[id(part)]) for part, cell in zip(drawn, areas, strict=False)
    ]
    if rest:
        text = f"{count(len(rest), 'small distribution')}: {size(_size(rest))}"
        style = "none"
        wasted = sum(min(part.wasted, part.size) for part in rest) / max(1, _size(rest))
        leaf = Leaf(areas[-1], style, areas[-1].width, areas[-1].width * wasted)
        cells.append(_label(areas[-1], (leaf,), f"{len(rest)} more", size(_size(rest)), text))
    needed = _CHARACTER * len(title) + 8
    return Block(area, title, needed > area.width * _NARROW / _WIDTH, tuple(cells))


def _cell(part: DistributionBytes, area: Area, whole: int, row: int) -> Cell:
    leaves = tuple(_leaves(part, area, whole))
    wasted = f", of these {size(part.wasted)} wasted" if part.wasted > 0 else ""
    text = f"{part_name(part)}: {size(part.size)}{wasted}; {vendors_text(part)}"
    return _label(area, leaves, part.name or "no distribution", size(part.size), text, row)


def _label(
    area: Area,
    leaves: tuple[Leaf, ...],
    name: str,
    size_text: str,
    text: str,
    row: int | None = None,
) -> Cell:
    label: tuple[str, ...] = ()
    has_size = area.height >= _TWO_LINES and area.width >= _CHARACTER * len(size_text) + 12
    if area.width >= _LABEL_WIDTH and area.height >= _LABEL_HEIGHT:
        most = int((area.width - 12) / _CHARACTER)
        short = name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
        label = (short, size_text) if has_size else (short,)
    is_plain = len(leaves) == 1 and not leaves[0].wasted and leaves[0].held == leaves[0].area.width
    plate = 0 if is_plain else round(12 + _CHARACTER * max(map(len, label), default=0))
    # Areas without room cannot show the focus; the table has them.
    is_visible = area.width >= 1 and area.height >= 1
    is_narrow = area.width < _WIDTH / 5
    return Cell(area, leaves, label, plate, is_narrow, text, row if is_visible else None)


def _leaves(part: DistributionBytes, area: Area, whole: int) -> Iterator[Leaf]:
    """The largest files, and the rest; all together are the distribution."""
    files = [file for file in part.files if file.size >= _LEAST_FILE * whole]
    rest = part.size - sum(file.size for file in files)
    if rest < 0:
        files, rest = [], part.size
    pieces = [
        (
            file.size,
            file.vendor,
            min(max(file.held, file.wasted, 0), file.size),
            file.wasted,
            f"{file.path}: {size(file.size)}",
        )
        for file in files
    ]
    for share in part.vendors:
        drawn = [piece for piece in pieces if piece[1] == share.vendor]
        bytes_ = min(rest, max(0, share.size - sum(held for _, _, held, _, _ in drawn)))
        if bytes_ and share.vendor:
            unused = max(0, share.wasted - sum(wasted for _, _, _, wasted, _ in drawn))
            pieces.append((bytes_, share.vendor, bytes_, unused, ""))
            rest -= bytes_
    if rest:
        unused = sum(share.wasted for share in part.vendors if not share.vendor)
        pieces.append((rest, "", rest, unused, ""))
    pieces.sort(reverse=True)
    for (bytes_, vendor, held, wasted, text), leaf in zip(
        pieces, squarify([piece[0] for piece in pieces], area), strict=True
    ):
        yield Leaf(
            leaf,
            vendor_class(vendor),
            leaf.width * (held if vendor else bytes_) / bytes_,
            leaf.width * min(max(0, wasted), bytes_) / bytes_,
            text,
        )


def percent(value: float) -> str:
    """A width or a horizontal place as an attribute of SVG."""
    return f"{100 * value / _WIDTH:.2f}%"


# Layers of an image as one strip


class LayerPiece(Struct, frozen=True):
    """Bytes of one layer that have one fate."""

    #: A class of the style sheet: what is used, wasted, or deleted by a later layer.
    kind: str
    x: float
    width: float


class LayerStrip(Struct, frozen=True):
    """The layers of targets that have the same ones, the lowest first."""

    targets: tuple[str, ...]
    layers: tuple[LayerBytes, ...]
    #: For each layer.
    pieces: tuple[tuple[LayerPiece, ...], ...]
    texts: tuple[str, ...]
    size: int
    wasted: int


def strip(targets: Sequence[str], layers: Sequence[LayerBytes]) -> LayerStrip:
    """The picture of the layers of one image."""
    parts = [_parts(layer) for layer in layers]
    whole = sum(bytes_ for part in parts for _, bytes_ in part)
    places = iter(lengths([bytes_ for part in parts for _, bytes_ in part], whole))
    return LayerStrip(
        tuple(targets),
        tuple(layers),
        tuple(tuple(LayerPiece(kind, *next(places)) for kind, _ in part) for part in parts),
        tuple(
            f"layer {number}: "
            + ", ".join(f"{size(bytes_)} {_WORDS[kind]}" for kind, bytes_ in part if bytes_)
            for number, part in enumerate(parts, 1)
        ),
        whole,
        sum(bytes_ for part in parts for kind, bytes_ in part if kind != "used"),
    )


_WORDS = {"used": "used", "lost": "wasted", "hidden": "deleted or replaced by a later layer"}


def _parts(layer: LayerBytes) -> list[tuple[str, int]]:
    whole = max(0, layer.size)
    hidden = min(max(0, layer.hidden), whole)
    wasted = min(max(0, layer.wasted), whole - hidden)
    return [("used", whole - hidden - wasted), ("lost", wasted), ("hidden", hidden)]
