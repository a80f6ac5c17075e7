"""`buildmatrix scan`."""

from __future__ import annotations

import click

from buildmatrix.cli.options import cache_option, engine_option, stack_options, store_option, take
from buildmatrix.cli.output import Output, report_output
from buildmatrix.commands.options import ScanOptions


@click.command("scan")
@take(ScanOptions, fail_on=stack_options(cache_option, store_option, engine_option, report_output))
def scan_command(options: ScanOptions, /, to: Output) -> int:
    """Read SOURCE and judge it for a backend. Nothing of it is executed.

    SOURCE is `dir:PATH` (a virtual environment, a site-packages or a root file system),
    `wheel:PATH`, `wheel:URL`, `docker:IMAGE`, `registry:IMAGE`, `tar:FILE` (docker save or an OCI
    archive), `oci:LAYOUT` or a target of the specification (its last build here); without a prefix
    it is recognized, and the interpreter of a virtual environment stands for it. The name of an
    image is Docker's where Docker has it, else a registry's.
    """
    from buildmatrix.api.judging import scan

    return to.write(scan(options))
