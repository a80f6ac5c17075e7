"""`buildmatrix scan`."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli.image_options import former_options, platform_option, tables_option
from buildmatrix.cli.machine import data_files, parse, reading_options
from buildmatrix.cli.options import CommandSettings, load_targets, option
from buildmatrix.cli.output import (
    check_formats,
    known_findings,
    more_waivers,
    report_options,
    write_report,
)
from buildmatrix.cli.surroundings import engine_option

if TYPE_CHECKING:
    from buildmatrix.reports.run.model import FailOn
    from buildmatrix.spec.model import Spec, Target

cache_option = option(
    "--no-cache", is_flag=True, help="Read everything again, and do not use the cache."
)


@click.command("scan", short_help="Read what lies in an image or a folder, and judge it.")
@click.argument("source")
@option(
    "--backend", metavar="NAME", help="The backend to judge for; by default what an image says."
)
@option(
    "--select",
    metavar="TARGET",
    help="A target of the specification: judge it as that, with its node classes and the policy.",
)
@option("--runtime", metavar="VERSION", default="any", help="The backend's version, 12.8 for CUDA.")
@platform_option
@tables_option
@option("--layers", is_flag=True, hidden=True, expose_value=False)
@cache_option
@engine_option
@former_options
@report_options
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    source: str,
    backend: str | None,
    select: str | None,
    runtime: str,
    engine: str,
    platform: str | None,
    tables: bool,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
) -> int:
    """Read SOURCE and judge it for a backend. Nothing of it is executed.

    SOURCE is `dir:PATH` (a virtual environment, a site-packages or a root file system),
    `wheel:PATH`, `wheel:URL`, `docker:IMAGE`, `registry:IMAGE`, `tar:FILE` (docker save or an OCI
    archive) or `oci:LAYOUT`; without a prefix it is recognized, and the interpreter of a virtual
    environment stands for it. The name of an image is Docker's where Docker has it, else a
    registry's.
    """
    from buildmatrix.commands.scan import scan
    from buildmatrix.reports.run.model import exit_code

    pairs = check_formats(formats, output)
    declared = _declared(settings, select, backend, runtime) if select is not None else None
    parsed = parse(source, "scan", settings, lambda: None)
    more, fingerprints = more_waivers(waivers, None), known_findings(baseline)
    with reading_options(
        settings, engine_name=engine, platform=platform, tables=tables, no_cache=no_cache
    ) as usual:
        facts = parsed.facts(replace(usual, data_files=tuple))
    own = data_files(settings)
    report = scan(facts, backend, runtime, fail_on, date.today(), more, fingerprints, own, declared)
    write_report(report, pairs, output)
    return exit_code(report, fail_on, strict)


def _declared(
    settings: CommandSettings, select: str, backend: str | None, runtime: str
) -> tuple[Spec, Target]:
    """The target of the specification that is meant."""
    from buildmatrix.errors import UsageError

    if backend is not None or runtime != "any":
        raise click.UsageError("--select says the backend and its version; leave the others out")
    spec, targets = load_targets(settings, [select], None)
    if len(targets) > 1:
        raise UsageError(
            f"--select {select} fits {len(targets)} targets ({targets[0].id}, {targets[1].id}, "
            "...); name one of them"
        )
    return spec, targets[0]
