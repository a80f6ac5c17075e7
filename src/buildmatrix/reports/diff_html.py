"""A comparison as an HTML page: new findings, bytes as pictures, then every difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, each_text, shown
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.reports import diff, page
from buildmatrix.reports.diff import Comparison, Drifts
from buildmatrix.reports.diff_sections import end, sections, state_of, summary
from buildmatrix.reports.page import Bar, bar, vendor_class, vendor_name
from buildmatrix.reports.sections import signed_size

#: Distributions and layers that a picture shows; the tables have all of them.
MOST_BARS = 15


class GrowthBar(Struct, frozen=True):
    """Bar of one thing that grew or shrank; the middle of the picture is zero."""

    name: str
    style: Literal["grown", "shrunk"]
    #: In percent of the picture.
    x: float
    width: float
    #: `+1.2 MB`
    text: str


def render(comparison: Comparison) -> str:
    """The comparison as one document; the same comparison gives the same bytes."""
    safe = each_text(comparison, shown)
    made = sections(safe, every=True)
    return page.render(
        "page/diff.html.j2",
        styles=["page/diff.css"],
        comparison=safe,
        end=end,
        summary=summary(safe),
        state=state_of(safe),
        headline=_headline(safe),
        numbers=list(_numbers(safe)),
        bars=list(zip(("before", "after"), _side_bars(safe), strict=False)),
        vendors=[(vendor_class(name), vendor_name(name)) for name in _vendors(safe)],
        pictures=[
            (title, bars)
            for title, bars in (
                ("Distributions that grew or shrank most", _distribution_bars(safe)),
                ("Layers that grew or shrank most", _layer_bars(safe)),
            )
            if bars
        ],
        findings=[section for section in made if section.items],
        others=[section for section in made if not section.items],
    )


def render_drift(drifts: Drifts) -> str:
    """Drift between targets as one document."""
    safe = each_text(drifts, shown)
    bare = len(safe.drift)
    headline = f"{count(bare, 'distribution')} without a reason" if bare else ""
    return page.render(
        "page/drift.html.j2",
        drifts=safe,
        state=diff.state_of(safe),
        headline=headline or "Nothing differs without a reason",
        sections=diff.sections(safe, every=True),
    )


def _headline(comparison: Comparison) -> str:
    if comparison.findings is None:
        return "Findings were not compared"
    new = len(comparison.findings.new)
    return (
        f"{count(new, 'finding')} {'is' if new == 1 else 'are'} new" if new else "No finding is new"
    )


def _numbers(comparison: Comparison) -> Iterator[tuple[str, object]]:
    if (findings := comparison.findings) is not None:
        yield "new", len(findings.new)
        yield "count otherwise", len(findings.changed)
        yield "gone", len(findings.gone)
    before, after = comparison.before.size, comparison.after.size
    if before is not None and after is not None:
        yield "in all", signed_size(after - before)


def _vendors(comparison: Comparison) -> list[str]:
    """Vendors with bytes on either side; empty stands for files without a vendor."""
    vendors = dict.fromkeys(change.vendor for change in comparison.vendors or ())
    rest = any(shares.get("") for shares in _shares(comparison))
    return [*([""] if rest else []), *vendors]


def _shares(comparison: Comparison) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of each side by vendor."""
    shares: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for change in comparison.vendors or ():
        for side, bytes_ in zip(shares, (change.before, change.after), strict=True):
            side[change.vendor] = side.get(change.vendor, 0) + max(0, bytes_)
    for side, whole in zip(shares, (comparison.before.size, comparison.after.size), strict=True):
        side[""] = max(0, (whole or 0) - sum(side.values()))
    return shares


def _side_bars(comparison: Comparison) -> tuple[Bar, ...]:
    """Both sides on one scale; none where not both sizes are known, and whose the bytes are."""
    if None in (comparison.before.size, comparison.after.size, comparison.vendors):
        return ()
    both, order = _shares(comparison), _vendors(comparison)
    longest = max(sum(side.values()) for side in both)
    return tuple(
        bar([VendorBytes(vendor, side.get(vendor, 0)) for vendor in order], longest)
        for side in (both if longest else ())
    )


def _distribution_bars(comparison: Comparison) -> tuple[GrowthBar, ...]:
    changes: list[tuple[str, int]] = []
    for change in comparison.distributions.changes:
        if change.change == "changed" and None in (change.size_before, change.size_after):
            continue
        grown = (change.size_after or 0) - (change.size_before or 0)
        changes.append((f"{change.name} {change.backend}".rstrip(), grown))
    return _growth(changes)


def _layer_bars(comparison: Comparison) -> tuple[GrowthBar, ...]:
    if comparison.layers is None:
        return ()
    return _growth(
        [
            (f"layer {change.index + 1}", (change.size_after or 0) - (change.size_before or 0))
            for change in comparison.layers.changes
        ]
    )


def _growth(changes: Sequence[tuple[str, int]]) -> tuple[GrowthBar, ...]:
    """The largest changes, on one scale whose middle is nothing."""
    shown_changes = sorted((item for item in changes if item[1]), key=lambda item: -abs(item[1]))
    shown_changes = shown_changes[:MOST_BARS]
    most = max((abs(grown) for _, grown in shown_changes), default=0)
    bars = []
    for name, grown in shown_changes:
        width = 50 * abs(grown) / most
        bars.append(
            GrowthBar(name, "grown", 50.0, width, signed_size(grown))
            if grown > 0
            else GrowthBar(name, "shrunk", 50.0 - width, width, signed_size(grown))
        )
    return tuple(bars)
