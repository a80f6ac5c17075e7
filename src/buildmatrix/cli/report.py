"""`buildmatrix report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli.output import check_formats, report_options, write_report

STDIN = Path("-")


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@report_options
def report_command(
    files: tuple[Path, ...],
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: Any,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
) -> int:
    """Render reports that `--format json` wrote; several become one. `-` is standard input.

    The exit code is that of the findings and gates in them. Waivers and a baseline that are given
    here count beside those of the run.
    """
    from datetime import date

    from buildmatrix.api.judging import add_gone, known_findings, more_waivers
    from buildmatrix.reports.run.model import exit_code
    from buildmatrix.reports.run.saved import accept, merge, parse, read

    pairs = check_formats(formats, output)
    accepted, fingerprints = more_waivers(waivers, None), known_findings(baseline)
    if files.count(STDIN) > 1:
        raise UsageError("- is standard input, which can be read only once")
    report = merge(
        [
            parse(sys.stdin.buffer.read(), "standard input") if path == STDIN else read(path)
            for path in files
        ]
    )
    report = accept(report, accepted, fingerprints, date.today(), fail_on)
    report = add_gone(report, baseline)
    code = exit_code(report, fail_on, strict)
    write_report(report, pairs, output, exit_code=code)
    return code
