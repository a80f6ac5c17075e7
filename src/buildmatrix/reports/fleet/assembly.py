"""A fleet report from its results, and its exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from buildmatrix import __version__
from buildmatrix.base.errors import EXIT_FINDINGS, UndecidedError, most_severe
from buildmatrix.base.text import each_text, shown
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.model import NODE_STATES, SEVERITY_RANK
from buildmatrix.reports.fleet.drift import drift_between
from buildmatrix.reports.fleet.model import (
    FleetFinding,
    FleetFit,
    FleetReport,
    FleetResult,
    FleetState,
    FleetWork,
    finding_order,
)
from buildmatrix.reports.run.model import ReportTool

# Texts


def clean(text: str) -> str:
    """A foreign text as a report keeps it: without secrets, and fit to be read again.

    Half a surrogate pair, as a path may hold, is in no JSON that a strict reader takes.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return shown(text)


# Exit code, by the contract


def exit_code(report: FleetReport, fail_on: FailOn = "error", strict: bool = False) -> int:
    """1 for findings, 3 where something was not judged or not looked at; 0 for neither.

    With `strict`, what is undecided counts as a finding.
    """
    codes = []
    if any(fails(finding, fail_on) for result in report.results for finding in result.findings):
        codes.append(EXIT_FINDINGS)
    if is_undecided(report):
        codes.append(EXIT_FINDINGS if strict else UndecidedError.exit_code)
    return most_severe(codes)


def fails(finding: FleetFinding, fail_on: FailOn) -> bool:
    """Return True if a finding makes a run fail that fails on `fail_on`."""
    if fail_on == "never" or finding.waived is not None:
        return False
    return SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[fail_on]


def is_undecided(report: FleetReport) -> bool:
    """Return True if some part of the fleet is undecided."""
    return bool(report.missing) or any(item.state == "undecided" for item in report.results)


# One report from results as they arrive: each image once, in an order independent of arrival


Value = TypeVar("Value")

#: Of two results about the same image, the first of these counts: what is known of its bytes does
#: not become unknown as somebody else could not read them.
_COUNTS: Mapping[FleetState, int] = {"failed": 0, "passed": 1, "undecided": 2}


def assemble(
    subject: str,
    results: Iterable[FleetResult],
    catalogue: str,
    *,
    would_run_on: Iterable[str] = (),
    missing: Iterable[str] = (),
    notes: Iterable[str] = (),
    work: FleetWork | None = None,
    since: FleetReport | None = None,
) -> FleetReport:
    """The report of a run: the same for the same results, in whatever order they came.

    Results with one `key` are one: their places, names and node classes are put together, and
    containers of different places are added. What could not be resolved by a name that another
    result has is left out. Secrets of addresses are taken out of all texts.

    Args:
        subject: what was named: `registry:HOST/PREFIX/*`, a file, a cluster.
        results: of all images; they are held once, however many there are.
        catalogue: the date of the catalogue that judged.
        would_run_on: node classes that were asked about.
        missing: what was not looked at, and why; a sentence each.
        notes: what was left out by request; a sentence each.
        work: what the run cost.
        since: an earlier report, to say what changed.
    """
    pool = _Pool()
    same: dict[tuple[str, ...], list[FleetResult]] = {}
    for result in results:
        held = pool.result(result)
        same.setdefault((held.kind, *held.key), []).append(held)
    merged = _drop_resolved([_merge(group) for group in same.values()])
    report = FleetReport(
        tool=ReportTool(version=__version__, catalogue=clean(catalogue)),
        subject=clean(subject),
        results=tuple(sorted(merged, key=_place)),
        would_run_on=tuple(dict.fromkeys(map(clean, would_run_on))),
        missing=tuple(sorted(set(map(clean, missing)))),
        notes=tuple(sorted(set(map(clean, notes)))),
        work=work or FleetWork(),
    )
    return report if since is None else replace(report, drift=drift_between(since, report))


class _Pool:
    """Values that many results share, once, and without secrets."""

    def __init__(self) -> None:
        self._held: dict[object, object] = {}

    def value(self, value: Value) -> Value:
        """The value, or its equal that was there before."""
        held = self._held.get(value)
        if held is None:
            self._held[value] = held = each_text(value, clean)
        return held  # type: ignore[return-value]  # Of the same type: `each_text` keeps it.

    def result(self, result: FleetResult) -> FleetResult:
        """The result with its lists in their order."""
        parts: dict[str, Any] = {item.name: getattr(result, item.name) for item in fields(result)}
        for name in ("names", "places", "node_classes"):
            parts[name] = tuple(sorted(set(parts[name])))
        parts |= {
            "vendors": tuple(
                sorted(result.vendors, key=lambda item: (-item.wasted, -item.size, item.vendor))
            ),
            "findings": tuple(sorted(set(result.findings), key=finding_order)),
            "fits": tuple(sorted(set(result.fits), key=lambda fit: fit.node)),
        }
        for name, value in parts.items():
            if isinstance(value, tuple):
                parts[name] = tuple(map(self.value, value))
            elif isinstance(value, str):
                parts[name] = self.value(value)
        return FleetResult(**parts)


def _place(result: FleetResult) -> tuple[object, ...]:
    return (result.repository, result.names, result.digest, result.platform, result.backend)


def _merge(group: Sequence[FleetResult]) -> FleetResult:
    """Results about the same image and backend as one."""
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda item: (_COUNTS[item.state], repr(item)))
    by_place: dict[tuple[object, ...], int] = {}
    for result in group:
        place = (result.names, result.places)
        by_place[place] = max(by_place.get(place, 0), result.containers)
    return replace(
        first,
        names=_union(result.names for result in group),
        places=_union(result.places for result in group),
        node_classes=_union(result.node_classes for result in group),
        containers=sum(by_place.values()),
        owner=first.owner or min(filter(None, (result.owner for result in group)), default=""),
        fits=_worst(fit for result in group for fit in result.fits),
    )


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({name for several in names for name in several}))


def _worst(fits: Iterable[FleetFit]) -> tuple[FleetFit, ...]:
    """Return the worst state on each node class."""
    by_node: dict[str, FleetFit] = {}
    for fit in sorted(fits, key=lambda fit: (NODE_STATES.index(fit.state), fit.reasons)):
        by_node[fit.node] = fit
    return tuple(by_node[node] for node in sorted(by_node))


def _drop_resolved(results: Sequence[FleetResult]) -> Iterable[FleetResult]:
    """Drop unresolved names that another result has."""
    names = {
        (result.repository, name) for result in results if result.digest for name in result.names
    }
    for result in results:
        is_resolved = result.digest or not result.names or result.kind == "lock"
        if is_resolved or any((result.repository, name) not in names for name in result.names):
            yield result
