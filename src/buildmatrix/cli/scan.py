"""`buildmatrix scan`."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.cache import fact_cache, user_cache
from buildmatrix.cli.options import Settings, option
from buildmatrix.cli.output import (
    check_formats,
    known_findings,
    more_waivers,
    report_options,
    write_report,
)
from buildmatrix.cli.surroundings import engine, engine_options
from buildmatrix.cli.wheels import wheel_reader
from buildmatrix.engines.model import Surroundings
from buildmatrix.spec.model import DEFAULT_TOOLS

if TYPE_CHECKING:
    from buildmatrix.reports.run.model import FailOn

cache_option = option(
    "--no-cache", is_flag=True, help="Read everything again, and remember nothing."
)


@click.command("scan", short_help="Read what lies in an image or a folder, and judge it.")
@click.argument("source")
@option("--backend", metavar="NAME", help="What it should be for; an image may say so itself.")
@option("--runtime", metavar="VERSION", default="any", help="The backend's line, 12.8 for CUDA.")
@option(
    "--scanner", metavar="IMAGE", default=DEFAULT_TOOLS["scanner"], help="Image with a Python 3."
)
@option(
    "--layers",
    is_flag=True,
    help="Of an engine's image, read the layers too, for what they hide: costs an export.",
)
@cache_option
@engine_options
@report_options
@click.pass_obj
def command(
    settings: Settings,
    /,
    source: str,
    backend: str | None,
    runtime: str,
    scanner: str,
    layers: bool,
    no_cache: bool,
    around: Surroundings,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
) -> int:
    """Read SOURCE and judge it for a backend. Nothing of it is executed.

    SOURCE is `dir:PATH` (a virtual environment, a site-packages or a root file system),
    `wheel:PATH`, `wheel:URL`, `docker:IMAGE`, `tar:FILE` (docker save or an OCI archive) or
    `oci:LAYOUT`; without a prefix it is recognised, and the interpreter of a virtual environment
    stands for it.
    """
    from buildmatrix.reports.run.model import exit_code
    from buildmatrix.scan import scan
    from buildmatrix.sources.source import Facts, address_of, parse, read
    from buildmatrix.spec.paths import read_data_files

    pairs = check_formats(formats, output)
    parsed = parse(source)
    more, known = more_waivers(waivers, None), known_findings(baseline)
    remote = address_of(parsed)
    if remote is not None:
        with wheel_reader(False, user_cache(no_cache)) as reader:
            facts = Facts(reader.read(remote, "whole").inventory)
    else:
        facts = read(parsed, engine, scanner, around, fact_cache(no_cache), layers=layers)
    own = read_data_files(settings.file)
    report = scan(parsed, facts, backend, runtime, fail_on, date.today(), more, known, own)
    write_report(report, pairs, output)
    return exit_code(report, fail_on, strict)
