"""`buildmatrix scan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from buildmatrix.cli import completing
from buildmatrix.cli.options import CommandSettings, option
from buildmatrix.cli.output import check_formats, policy_option, report_options, write_result
from buildmatrix.cli.workspace import engine_option, image_options, workspace

if TYPE_CHECKING:
    from buildmatrix.judge.acceptance import FailOn


@click.command("scan")
@click.argument("source", shell_complete=completing.sources)
@option("--backend", metavar="NAME", help="Backend to judge for; defaults to that of the image.")
@option(
    "--select",
    metavar="TARGET",
    help="Judge it as this target of the specification, with its node classes and the policy.",
)
@option("--runtime", metavar="VERSION", default="any", help="The backend's version, 12.8 for CUDA.")
@image_options
@engine_option
@report_options
@policy_option
@click.pass_obj
def scan_command(
    settings: CommandSettings,
    /,
    source: str,
    backend: str | None,
    select: str | None,
    runtime: str,
    engine: str,
    platform: str | None,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
    policy: str | None,
) -> int:
    """Read SOURCE and judge it for a backend. Nothing of it is executed.

    SOURCE is `dir:PATH` (a virtual environment, a site-packages or a root file system),
    `wheel:PATH`, `wheel:URL`, `docker:IMAGE`, `registry:IMAGE`, `tar:FILE` (docker save or an OCI
    archive), `oci:LAYOUT` or a target of the specification (its last build here); without a prefix
    it is recognized, and the interpreter of a virtual environment stands for it. The name of an
    image is Docker's where Docker has it, else a registry's.
    """
    from buildmatrix.api.judging import scan

    pairs = check_formats(formats, output)
    result = scan(
        source,
        backend=backend,
        runtime=runtime,
        select=select,
        platform=platform,
        fail_on=fail_on,
        strict=strict,
        waivers=waivers,
        baseline=baseline,
        policy=policy,
        workspace=workspace(settings, engine=engine, no_cache=no_cache),
    )
    return write_result(result, pairs, output)
