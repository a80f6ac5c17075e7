"""The report of a fleet as JSON, JSON Lines and Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from buildmatrix.base.data import field_names, is_record
from buildmatrix.base.text import each_text, guarded, in_json
from buildmatrix.reports import json_form
from buildmatrix.reports.fleet import (
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetReport,
    FleetResult,
    ResultFacts,
    RunFacts,
)
from buildmatrix.reports.fleet_assembly import clean
from buildmatrix.reports.json_form import plain

# JSON: values shared by many results are written once.
#
# Most of 10,000 images with twenty layers each share layers and findings. `findings`, `fits` and
# `layers` are tables, and a result has the numbers of their entries.


Entry = TypeVar("Entry")


class IndexedResult(ResultFacts, frozen=True, kw_only=True):
    """A result that points into the tables of its document."""

    findings: tuple[int, ...] = ()
    fits: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDocument(RunFacts):
    """Everything that a run says about a fleet, as its JSON form has it."""

    findings: tuple[FleetFinding, ...] = ()
    fits: tuple[FleetFit, ...] = ()
    layers: tuple[FleetLayer, ...] = ()
    results: tuple[IndexedResult, ...] = ()


#: Fields shared by a document and its report.
_SHARED = field_names(RunFacts)
_FACTS = field_names(ResultFacts)


def make_document(report: FleetReport) -> FleetDocument:
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


# JSON Lines (https://jsonlines.org): one complete result per line, written as results arrive


def line(result: FleetResult) -> str:
    """A result as one line, with its end; without secrets, and nothing in it is obeyed."""
    form = plain(each_text(result, clean))
    text = json.dumps({"schema": form.pop("schema"), **form}, ensure_ascii=False)
    return guarded(text, in_json) + "\n"


def render_lines(report: FleetReport) -> str:
    """All results, in the order of the report."""
    return "".join(map(line, report.results))


# Parquet: one row per result, with lists in its cells.
#
# Columns are the fields of `FleetResult`, and list elements are structs: DuckDB's `unnest` and
# pandas' `explode` make rows of them. A dictionary stores repeated values once.
# https://parquet.apache.org/docs/file-format/


#: Rows that are in memory as Python values at one time.
_BATCH = 1000


def render_parquet(report: FleetReport) -> bytes:
    """The file; the same report and the same pyarrow give the same bytes."""
    import pyarrow
    from pyarrow import parquet

    about = {
        "buildmatrix": report.tool.version,
        "catalogue": report.tool.catalogue,
        "subject": report.subject,
    }
    schema = pyarrow.schema(_fields(FleetResult), metadata=about)
    held = BytesIO()
    with parquet.ParquetWriter(held, schema, compression="zstd") as writer:
        for start in range(0, len(report.results), _BATCH):
            rows = [plain(result) for result in report.results[start : start + _BATCH]]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    return held.getvalue()


def _fields(kind: type) -> list[Any]:
    """The columns, or the fields of a struct, that a data class becomes."""
    import pyarrow

    hints = get_type_hints(kind)
    made = []
    for name in field_names(kind):
        parts = set(get_args(hints[name]))
        is_optional = NoneType in parts
        (hint,) = parts - {NoneType} if is_optional else (hints[name],)
        made.append(pyarrow.field(name, _type(hint), nullable=is_optional))
    return made


def _type(hint: Any) -> Any:
    """The Arrow type of a field's type."""
    import pyarrow

    if get_origin(hint) is tuple:
        return pyarrow.list_(_type(get_args(hint)[0]))
    if get_origin(hint) is Literal or hint is str:
        return pyarrow.string()
    if is_record(hint):
        return pyarrow.struct(_fields(hint))
    return {int: pyarrow.int64(), bool: pyarrow.bool_()}[hint]
