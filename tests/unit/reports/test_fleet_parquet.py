"""A fleet as Parquet: what pyarrow reads is what the report says, and the documentation asks."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fleet_cases import fleet, hostile

from buildmatrix.base.errors import ComponentError, UsageError
from buildmatrix.cli import output
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.reports import fleet_documents as parquet_form
from buildmatrix.reports import formats
from buildmatrix.reports.fleet import FleetReport
from buildmatrix.reports.formats import FLEET, Destination, find_format, names
from buildmatrix.reports.json_form import plain

DOCS = Path(__file__).parents[3] / "docs"


def table_of(report: FleetReport):
    from pyarrow import parquet

    return parquet.read_table(io.BytesIO(data_of(report)))


def data_of(report: FleetReport) -> bytes:
    return find_format(FLEET, "parquet").data(report, Destination())


@pytest.mark.parametrize("size", [25, "hostile", 0])
def test_every_result_is_a_row_with_all_that_its_line_has(
    size: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_form, "_BATCH", 10)
    report = fleet(size) if isinstance(size, int) else hostile("<b>=1+1\n", "=cmd|x")
    rows = table_of(report).to_pylist()
    assert len(rows) == len(report.results)
    for row, result in zip(rows, report.results, strict=True):
        form = plain(result)
        for finding in form["findings"]:
            finding.setdefault("waived", None)
        assert row == form


def test_the_same_report_gives_the_same_bytes_and_they_are_few() -> None:
    assert data_of(fleet(300)) == data_of(fleet(300))
    assert len(data_of(fleet(300))) < 400 * 300


def test_a_file_says_what_it_is_about() -> None:
    about = table_of(fleet(3)).schema.metadata
    assert about[b"catalogue"] == b"2026-11-20"
    assert about[b"subject"] == b"registry:registry.example.com/*"


def documented(pattern: str) -> str:
    """The one piece of the documentation that asks a file, as it stands."""
    text = (DOCS / "fleet.md").read_text(encoding="utf-8")
    (code,) = (
        piece
        for piece in re.findall(pattern, text, re.DOTALL | re.MULTILINE)
        if "fleet.parquet" in piece
    )
    return code


def answered(code: str, folder: Path) -> str:
    """Return the output of a program that imports large packages, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def wasted_by_vendor(report: FleetReport) -> dict[str, int]:
    wasted = Counter[str]()
    for result in report.results:
        for held in result.vendors:
            wasted[held.vendor] += held.wasted
    return {vendor: size for vendor, size in wasted.items() if size}


def test_what_the_documentation_asks_by_pyarrow_is_answered(tmp_path: Path) -> None:
    code = documented(r"^```python\n(.*?)^```")
    report = fleet(300)
    (tmp_path / "fleet.parquet").write_bytes(data_of(report))
    wasted = sum(wasted_by_vendor(report).values())
    lines = answered(code, tmp_path).splitlines()
    assert sum(int(line.split()[-1]) for line in lines) == wasted > 0


@pytest.mark.parametrize("count", [0, 300])
def test_what_the_documentation_asks_by_duckdb_is_answered(count: int, tmp_path: Path) -> None:
    report = fleet(count)
    (tmp_path / "fleet.parquet").write_bytes(data_of(report))
    query = documented(r"^```sql\n(.*?)^```")
    code = f"import duckdb, json\nprint(json.dumps(duckdb.connect().execute({query!r}).fetchall()))"
    rows = json.loads(answered(code, tmp_path))
    assert {vendor: size for vendor, _, size in rows} == wasted_by_vendor(report)
    assert [size for _, _, size in rows] == sorted((row[2] for row in rows), reverse=True)
    assert all(
        images
        == sum(any(h.vendor == vendor and h.wasted for h in r.vendors) for r in report.results)
        for vendor, images, _ in rows
    )


def test_what_the_documentation_asks_by_pandas_is_answered(tmp_path: Path) -> None:
    report = fleet(300)
    (tmp_path / "fleet.parquet").write_bytes(data_of(report))
    code = (
        "import json, pandas\n"
        f"rows = {documented(r'`(pandas[.][^`]+)`')}\n"
        "print(json.dumps([item['rule'] for item in rows.findings.dropna()]))"
    )
    rules = Counter(json.loads(answered(code, tmp_path)))
    assert rules == Counter(item.rule for result in report.results for item in result.findings)


def test_pyarrow_is_imported_only_where_parquet_is_asked_for() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; from fleet_cases import fleet\n"
        "from buildmatrix.reports.formats import FLEET, Destination\n"
        "report = fleet(3)\n"
        "[item.render(report, Destination()) for item in FLEET if not item.syntax.binary]\n"
        "print('pyarrow' in sys.modules)"
    )
    pages = Path(__file__).parents[2] / "pages"
    done = subprocess.run(
        [sys.executable, "-c", code, pages], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_without_pyarrow_it_is_said_before_the_work_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(ComponentError, match=r"pip install 'buildmatrix\[parquet\]'"):
        output.check_formats(["parquet=a.parquet"], None, names(FLEET))
    with pytest.raises(ComponentError, match="pyarrow"):
        CommandResult(fleet(1), 0, FLEET).data("parquet")
    assert output.check_formats(["table"], None, names(FLEET)) == (("table", None),)


def test_bytes_go_to_a_file_and_into_a_pipe_but_to_no_terminal(
    tmp_path: Path, capfdbinary, monkeypatch
) -> None:
    report = fleet(3)
    path = tmp_path / "fleet.parquet"
    output.write_document(FLEET, report, [("parquet", path)], None)
    assert path.read_bytes() == data_of(report)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; from fleet_cases import fleet\n"
        "from buildmatrix.cli import output; from buildmatrix.reports.formats import FLEET\n"
        "output.write_document(FLEET, fleet(3), [('parquet', None)], None)"
    )
    pages = Path(__file__).parents[2] / "pages"
    done = subprocess.run([sys.executable, "-c", code, pages], capture_output=True, check=True)
    assert done.stdout == data_of(report)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="name a file"):
        output.write_document(FLEET, report, [("parquet", None)], None)
    with pytest.raises(UsageError, match="cannot be written"):
        output.write_document(FLEET, report, [("parquet", tmp_path / "no" / "a.parquet")], None)


def test_a_result_of_a_command_gives_bytes_in_any_format() -> None:
    result = CommandResult(fleet(3), 0, FLEET)
    assert result.data("parquet") == data_of(result.document)
    assert result.data("json") == result.render("json").encode()
    with pytest.raises(UsageError, match="use `data`"):
        result.render("parquet")
    with pytest.raises(UsageError, match="there is no format 'x'"):
        result.data("x")
