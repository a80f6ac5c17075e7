"""The grid of targets and node classes in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.reports.run.nodes import STYLES, columns, notes, rule_codes
from buildmatrix.reports.terminal import Painter, Style, wrapped
from buildmatrix.rules.model import NodeFit, TargetResult
from buildmatrix.text import printable

_PAINTED: dict[str, Style] = {"good": "green", "fair": "yellow", "bad": "red"}
_HEAD = "runs on"


def grid(targets: Sequence[TargetResult], width: int, paint: Painter) -> list[str]:
    """Targets by node classes; one line for each pair where the grid is too wide.

    Nothing where no target has node classes. What is no finding is said below.
    """
    shown = [target for target in targets if target.nodes]
    if not shown:
        return []
    nodes = columns(shown)
    names = max(len(_HEAD), *(len(printable(target.id)) for target in shown))
    widths = [
        max(len(printable(node)), *(len(_cell(target, node)) for target in shown)) for node in nodes
    ]
    if names + sum(column + 2 for column in widths) <= width:
        lines = _matrix(shown, nodes, names, widths, paint)
    else:
        lines = _list(shown, paint)
    for text in notes(shown):
        lines += wrapped(text, width, "  ")
    return lines


def _matrix(
    targets: Sequence[TargetResult],
    nodes: Sequence[str],
    names: int,
    widths: Sequence[int],
    paint: Painter,
) -> list[str]:
    head = [printable(node).ljust(width) for node, width in zip(nodes, widths, strict=True)]
    lines = [paint("  ".join([_HEAD.ljust(names), *head]).rstrip(), "bold")]
    for target in targets:
        cells = [printable(target.id).ljust(names)]
        for node, width in zip(nodes, widths, strict=True):
            fit = _fit(target, node)
            text = _cell(target, node).ljust(width)
            cells.append(paint(text, _PAINTED[STYLES[fit.state]]) if fit is not None else text)
        lines.append("  ".join(cells).rstrip())
    return lines


def _list(targets: Sequence[TargetResult], paint: Painter) -> list[str]:
    lines = [paint(_HEAD, "bold")]
    for target in targets:
        lines.append(printable(target.id))
        for fit in target.nodes or ():
            text = paint(_cell(target, fit.node), _PAINTED[STYLES[fit.state]])
            lines.append(f"  {printable(fit.node)}: {text}")
    return lines


def _fit(target: TargetResult, node: str) -> NodeFit | None:
    return next((fit for fit in target.nodes or () if fit.node == node), None)


def _cell(target: TargetResult, node: str) -> str:
    fit = _fit(target, node)
    if fit is None:
        return "-"
    codes = rule_codes(fit)
    return f"{fit.state} ({codes})" if codes else fit.state
