"""The registry of formats: every command offers what it lists, and a new format is a line in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_report_formats import finding, report

from buildmatrix.reports import formats
from buildmatrix.reports.formats import RUN, Destination, Format, find_format, names
from buildmatrix.reports.json_form import render

#: A program with one more format, of which everything stands in this text.
WITH_ONE_MORE = """
import sys, types
from buildmatrix.reports import formats
module = types.ModuleType("buildmatrix.reports.names")
module.render = lambda report, width: f"{width} {report.subject} {len(report.findings)}"
sys.modules[module.__name__] = module
formats.RUN += (formats.Format("names", "names:render", formats.LINES),)
from buildmatrix.cli import main
main(sys.argv[1:])
"""


def test_a_new_format_is_a_module_and_a_line(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(render(report(finding())))
    done = subprocess.run(
        [sys.executable, "-c", WITH_ONE_MORE, "report", "report.json", "--format", "names"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "100 buildmatrix.toml 1\n", "")


@pytest.mark.parametrize("table", formats.ALL)
def test_every_format_can_be_loaded_and_has_one_name(table: tuple[Format, ...]) -> None:
    assert len(set(names(table))) == len(table)
    for one in table:
        for function in filter(None, (one.renderer, one.preparer)):
            assert callable(formats._load(function))


def test_a_format_gets_what_it_needs_and_no_more() -> None:
    one = report(finding())
    for color in (True, False):
        to = Destination(color=color)
        assert ("\x1b[" in find_format(RUN, "table").render(one, to)) == color
        assert find_format(RUN, "json").render(one, to) == render(one)


def test_the_registry_imports_no_format() -> None:
    code = (
        "import sys, buildmatrix.reports.formats\n"
        "print(*(name for name in sys.modules if name.startswith('buildmatrix.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = {"buildmatrix.reports", "buildmatrix.reports.formats"}
    expected |= {f"buildmatrix.base{name}" for name in ("", ".data", ".errors", ".text")}
    assert set(done.stdout.split()) == expected
