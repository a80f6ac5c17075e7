"""The results as one Parquet file, for those who ask further: a row for each, lists in its cells.

Columns are the fields of `FleetResult`, and what is in a list is a struct of its fields: DuckDB's
`unnest` and pandas' `explode` make rows of them. Repeated values cost nothing: Parquet keeps each
once in a dictionary. https://parquet.apache.org/docs/file-format/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from io import BytesIO
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from buildmatrix.reports.fleet.model import FleetReport, FleetResult
from buildmatrix.reports.json_form import plain

#: Rows that are in memory as Python values at one time.
_BATCH = 1000


def render(report: FleetReport) -> bytes:
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
        for batch in _batches(report.results):
            rows = [plain(result) for result in batch]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
    return held.getvalue()


def _batches(results: Sequence[FleetResult]) -> list[Sequence[FleetResult]]:
    return [results[start : start + _BATCH] for start in range(0, len(results), _BATCH)]


def _fields(kind: type) -> list[Any]:
    """The columns, or the fields of a struct, that a data class becomes."""
    import pyarrow

    hints = get_type_hints(kind)
    made = []
    for item in fields(kind):
        parts = set(get_args(hints[item.name]))
        is_optional = NoneType in parts
        (hint,) = parts - {NoneType} if is_optional else (hints[item.name],)
        made.append(pyarrow.field(item.name, _type(hint), nullable=is_optional))
    return made


def _type(hint: Any) -> Any:
    """The Arrow type of a field's type."""
    import pyarrow

    if get_origin(hint) is tuple:
        return pyarrow.list_(_type(get_args(hint)[0]))
    if get_origin(hint) is Literal or hint is str:
        return pyarrow.string()
    if is_dataclass(hint) and isinstance(hint, type):
        return pyarrow.struct(_fields(hint))
    return {int: pyarrow.int64(), bool: pyarrow.bool_()}[hint]
