"""Grids of node classes and GPU architectures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.catalogue.drivers import Support
from buildmatrix.judge.model import DeviceFit, NodeFit, TargetResult, Verdict
from buildmatrix.reports.page import vendor_class, vendor_name
from buildmatrix.reports.sections import STATES

# The grid of targets and node classes


def columns(targets: Iterable[TargetResult]) -> Sequence[str]:
    """The node classes of all targets, each once."""
    return tuple(dict.fromkeys(fit.node for target in targets for fit in target.nodes or ()))


def rule_codes(fit: NodeFit) -> str:
    """The rules that have a finding about a cell, with a word on those that are accepted."""
    if fit.state == "ok":
        return ""
    codes: dict[str, bool] = {}
    for reason in fit.reasons:
        if reason.rule:
            codes[reason.rule] = codes.get(reason.rule, True) and reason.waived
    return ", ".join(f"{code} waived" if waived else code for code, waived in sorted(codes.items()))


def notes(targets: Iterable[TargetResult]) -> Sequence[str]:
    """Return the remarks on cells that no finding makes, each sentence once."""
    sentences = (
        f"{fit.node}: {reason.text}"
        for target in targets
        for fit in target.nodes or ()
        for reason in fit.reasons
        if not reason.rule
    )
    return tuple(dict.fromkeys(sentences))


# Architectures with code, by distribution: a grid for each backend


#: More architectures than anybody reads: none of real distributions comes near.
_MOST = 60


class ArchitectureGrid(Struct, frozen=True):
    """Distributions that hold device code of one vendor."""

    vendor: str
    style: str
    architectures: tuple[str, ...]
    #: Label of a distribution, the backends that it is on, and whether it has each architecture.
    rows: tuple[tuple[str, str, tuple[bool, ...]], ...]
    #: Architectures that are not shown.
    more: int


def architecture_grids(verdicts: Iterable[Verdict]) -> Sequence[ArchitectureGrid]:
    """Return a grid for each vendor with device code."""
    held: dict[str, dict[tuple[str, frozenset[str]], dict[str, None]]] = {}
    for verdict in verdicts:
        for vendor, architectures in verdict.architectures.items():
            if architectures:
                label = f"{verdict.name} {verdict.version}"
                row = held.setdefault(vendor, {}).setdefault((label, frozenset(architectures)), {})
                row[verdict.backend] = None
    return [_grid(vendor, rows) for vendor, rows in sorted(held.items())]


def _grid(vendor: str, held: dict[tuple[str, frozenset[str]], dict[str, None]]) -> ArchitectureGrid:
    every = sort_architectures({name for _, names in held for name in names})
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


def sort_architectures(architectures: Iterable[str]) -> Sequence[str]:
    """Binary code before portable code, each by its numbers."""
    return sorted(architectures, key=_natural)


def _natural(name: str) -> tuple[bool, tuple[tuple[int, int | str], ...]]:
    """`sm_90` before `sm_100`, and both before `compute_90`, which a driver compiles."""
    return name.startswith("compute"), tuple(
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d{1,9})", name)
    )


# Architectures by node class: a heat map.
#
# Columns are node classes, each with its GPUs. A group of rows has what several targets share:
# their state there, the grade of all their device code, and the grade of each architecture that
# they have code for.


#: What code is worth on a GPU -> class of the page, and how it is said.
_WORDS: Mapping[Support, tuple[str, str]] = {
    "native": ("native", "native"),
    "jit": ("jit", "JIT only"),
    "unknown": ("unsure", "undecided"),
    "none": ("missing", "missing"),
}
#: Of one architecture among others it is no fault that it is for other GPUs.
ELSEWHERE = "elsewhere"


class Column(Struct, frozen=True):
    """A node class, and its GPUs; one without a name where the class names none."""

    node: str
    devices: tuple[str, ...]


class MapCell(Struct, frozen=True):
    """One field. An empty style is that of a target that does not run there."""

    style: str = ""
    text: str = ""
    #: GPUs that it is about.
    span: int = 1


class MapRow(Struct, frozen=True):
    """Architectures that serve the same GPUs alike; `all device code` where it names none."""

    architectures: tuple[str, ...]
    cells: tuple[MapCell, ...]


class MapGroup(Struct, frozen=True):
    """Fields of targets that are alike in every field."""

    targets: tuple[str, ...]
    #: How they run on each node class.
    fits: tuple[MapCell, ...]
    rows: tuple[MapRow, ...]
    #: Node class, how the targets run there, and the sentences that say why.
    reasons: tuple[tuple[str, str, tuple[str, ...]], ...]


class NodeMap(Struct, frozen=True):
    """The picture."""

    columns: tuple[Column, ...]
    groups: tuple[MapGroup, ...]

    @property
    def has_code(self) -> bool:
        """True if it mentions device code."""
        return any(group.rows for group in self.groups)


def node_map(targets: Sequence[TargetResult]) -> NodeMap | None:
    """The picture of all targets that have node classes; None where none has."""
    shown = [target for target in targets if target.nodes]
    if not shown:
        return None
    gpus: dict[str, dict[str, None]] = {node: {} for node in columns(shown)}
    alike: dict[str, list[TargetResult]] = {}
    for target in shown:
        alike.setdefault(repr(target.nodes), []).append(target)
        for fit in target.nodes or ():
            gpus[fit.node] |= dict.fromkeys(device.arch for device in fit.devices or ())
    every = tuple(Column(node, tuple(archs) or ("",)) for node, archs in gpus.items())
    return NodeMap(every, tuple(_group(same, every) for same in alike.values()))


def _group(targets: Sequence[TargetResult], every: Sequence[Column]) -> MapGroup:
    fits = {fit.node: fit for fit in targets[0].nodes or ()}
    return MapGroup(
        tuple(target.id for target in targets),
        tuple(_fit(fits.get(column.node), len(column.devices)) for column in every),
        tuple(_rows(fits, every)),
        tuple(
            (
                fit.node,
                fit.state,
                tuple(
                    f"{reason.rule} {reason.text}{' (waived)' if reason.waived else ''}".lstrip()
                    for reason in fit.reasons
                ),
            )
            for fit in fits.values()
            if fit.reasons
        ),
    )


def _fit(fit: NodeFit | None, span: int) -> MapCell:
    if fit is None:
        return MapCell(span=span)
    codes = rule_codes(fit)
    return MapCell(STATES[fit.state], f"{fit.state} {codes}".rstrip(), span)


def _rows(fits: Mapping[str, NodeFit], every: Iterable[Column]) -> Iterator[MapRow]:
    """All device code together, then by what each architecture of it serves."""
    places = [(fits.get(column.node), arch) for column in every for arch in column.devices]
    devices = [(fit, _device(fit, arch)) for fit, arch in places]
    codes = sort_architectures({code for _, device in devices if device for code in device.code})
    if not codes:
        return
    yield MapRow((), tuple(_cell(fit, device) for fit, device in devices))
    alike: dict[tuple[MapCell, ...], list[str]] = {}
    for code in codes:
        row = tuple(_cell(fit, device, code) for fit, device in devices)
        alike.setdefault(row, []).append(code)
    for row, names in alike.items():
        yield MapRow(tuple(names), row)


def _device(fit: NodeFit | None, arch: str) -> DeviceFit | None:
    devices = fit.devices or () if fit is not None else ()
    return next((device for device in devices if device.arch == arch), None)


def _cell(fit: NodeFit | None, device: DeviceFit | None, code: str | None = None) -> MapCell:
    """A field about one GPU and one architecture's code, or all code.

    What a class without GPUs runs is not known.
    """
    if device is None:
        return MapCell(*_WORDS["unknown"]) if fit is not None else MapCell()
    if code is not None:
        support = device.code.get(code, "none")
        return MapCell(ELSEWHERE, "other GPUs") if support == "none" else MapCell(*_WORDS[support])
    style, text = _WORDS[device.support]
    count = sum(support == device.support for support in device.holders.values())
    if count < len(device.holders):
        text = f"{text}: {count} of {len(device.holders)}"
    return MapCell(style, text)
