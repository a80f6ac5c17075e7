"""Which GPU architectures distributions hold code for: a grid for each backend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.reports.page.vendors import vendor_class, vendor_name
from buildmatrix.rules.model import Verdict

#: More architectures than anybody reads: none of real distributions comes near.
_MOST = 60


@dataclass(frozen=True, slots=True)
class ArchitectureGrid:
    """Distributions that hold device code of one vendor."""

    vendor: str
    style: str
    architectures: tuple[str, ...]
    #: Label of a distribution, the backends that it is on, and whether it has each architecture.
    rows: tuple[tuple[str, str, tuple[bool, ...]], ...]
    #: Architectures that are not shown.
    more: int


def architecture_grids(verdicts: Iterable[Verdict]) -> Sequence[ArchitectureGrid]:
    """A grid for each vendor whose device code is there."""
    held: dict[str, dict[tuple[str, frozenset[str]], dict[str, None]]] = {}
    for verdict in verdicts:
        for vendor, architectures in verdict.architectures.items():
            if architectures:
                label = f"{verdict.name} {verdict.version}"
                row = held.setdefault(vendor, {}).setdefault((label, frozenset(architectures)), {})
                row[verdict.backend] = None
    return [_grid(vendor, rows) for vendor, rows in sorted(held.items())]


def _grid(vendor: str, held: dict[tuple[str, frozenset[str]], dict[str, None]]) -> ArchitectureGrid:
    every = in_order({name for _, names in held for name in names})
    columns = every[:_MOST]
    return ArchitectureGrid(
        vendor_name(vendor),
        vendor_class(vendor),
        tuple(columns),
        tuple(
            (label, ", ".join(backends), tuple(name in names for name in columns))
            for (label, names), backends in sorted(held.items(), key=lambda item: item[0][0])
        ),
        len(every) - len(columns),
    )


def in_order(architectures: Iterable[str]) -> Sequence[str]:
    """Binary code before portable code, each by its numbers."""
    return sorted(architectures, key=_natural)


def _natural(name: str) -> tuple[bool, tuple[tuple[int, int | str], ...]]:
    """`sm_90` before `sm_100`, and both before `compute_90`, which a driver compiles."""
    return name.startswith("compute"), tuple(
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d{1,9})", name)
    )
