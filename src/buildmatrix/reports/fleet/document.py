"""The JSON form of a report of a fleet: what many results share is written once.

Of 10,000 images with twenty layers each, most layers and findings are those of other images, too.
`findings`, `fits` and `layers` are tables, and a result has the numbers of their entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeVar

from buildmatrix import __version__
from buildmatrix.reports import json_form
from buildmatrix.reports.fleet.model import (
    FleetDrift,
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetReport,
    FleetResult,
    FleetWork,
    ResultFacts,
)
from buildmatrix.reports.run.model import ReportTool
from buildmatrix.rules.model import IF_KNOWN

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedResult(ResultFacts):
    """A result that points into the tables of its document."""

    findings: tuple[int, ...] = ()
    fits: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDocument:
    """Everything that a run says about a fleet, as its JSON form has it."""

    schema: Literal["buildmatrix/fleet/1"] = "buildmatrix/fleet/1"
    tool: ReportTool = field(default=ReportTool(version=__version__, catalogue=""))
    subject: str
    would_run_on: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    work: FleetWork = field(default_factory=FleetWork)
    drift: FleetDrift | None = field(default=None, metadata=IF_KNOWN)
    findings: tuple[FleetFinding, ...] = ()
    fits: tuple[FleetFit, ...] = ()
    layers: tuple[FleetLayer, ...] = ()
    results: tuple[IndexedResult, ...] = ()


#: What a document and its report have alike.
_SHARED = ("tool", "subject", "would_run_on", "missing", "notes", "work", "drift")
_FACTS = tuple(item.name for item in fields(ResultFacts))


def of_report(report: FleetReport) -> FleetDocument:
    """The report with its tables, in the order in which results name their entries."""
    findings: dict[FleetFinding, int] = {}
    fits: dict[FleetFit, int] = {}
    layers: dict[FleetLayer, int] = {}
    results = tuple(
        IndexedResult(
            **{name: getattr(result, name) for name in _FACTS},
            findings=_numbers(result.findings, findings),
            fits=_numbers(result.fits, fits),
            layers=_numbers(result.layers, layers),
        )
        for result in report.results
    )
    return FleetDocument(
        **{name: getattr(report, name) for name in _SHARED},
        findings=tuple(findings),
        fits=tuple(fits),
        layers=tuple(layers),
        results=results,
    )


def parse(data: bytes) -> FleetReport:
    """A report from its JSON form. Raises `ValueError` for what is none."""
    document = json_form.parse(data, FleetDocument)
    return FleetReport(
        **{name: getattr(document, name) for name in _SHARED},
        results=tuple(
            FleetResult(
                **{name: getattr(result, name) for name in _FACTS},
                findings=_entries(result.findings, document.findings),
                fits=_entries(result.fits, document.fits),
                layers=_entries(result.layers, document.layers),
            )
            for result in document.results
        ),
    )


def _numbers(entries: Iterable[Entry], table: dict[Entry, int]) -> tuple[int, ...]:
    return tuple(table.setdefault(entry, len(table)) for entry in entries)


def _entries(numbers: Iterable[int], table: Sequence[Entry]) -> tuple[Entry, ...]:
    try:
        # A negative number would count from the end.
        return tuple(table[number if number >= 0 else len(table)] for number in numbers)
    except IndexError:
        raise ValueError("a result points to an entry that its table does not have") from None
