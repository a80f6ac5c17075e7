"""`buildmatrix audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import (
    cache_option,
    engine_option,
    option,
    stack_options,
    store_option,
    take,
)
from buildmatrix.cli.output import Output, report_output
from buildmatrix.cli.shards import Part, Sharding, shard_options
from buildmatrix.commands.options import AuditOptions, ScanOptions, list_sources

if TYPE_CHECKING:
    from buildmatrix.commands.workspace import CommandResult
    from buildmatrix.matrix.model import Spec
    from buildmatrix.reports.run import Report


@click.command("audit")
@take(
    AuditOptions,
    select=option(
        "-r",
        "--requirement",
        "requirements",
        multiple=True,
        metavar="FILE",
        help="Audit this requirements file: the same as requirements:FILE.",
    ),
    backends=shard_options,
    fix=option("--offline", is_flag=True, help="Use caches only."),
    fail_on=stack_options(cache_option, store_option, report_output),
)
def audit_command(
    options: AuditOptions, /, requirements: tuple[str, ...], sharding: Sharding | None, to: Output
) -> int:
    """Judge what would be installed, from the package index alone: no wheel is downloaded.

    SOURCE is a requirements file, a `pyproject.toml`, a lock (`pylock*.toml`, `uv.lock`,
    `poetry.lock`, `Pipfile.lock`, `pixi.lock`, `conda-lock.yml`), `pypi:NAME==VERSION` or a
    wheel; without one, the targets of the specification are audited. What is not locked is
    resolved for each backend.
    """
    from buildmatrix.api.judging import audit
    from buildmatrix.commands.audit import share_one_heap
    from buildmatrix.sources.resolved import spec_targets

    sources = (*list_sources(options.sources), *(f"requirements:{file}" for file in requirements))
    share_one_heap()
    part = Part(())
    if sharding is not None:
        if sources:
            raise UsageError("--shard divides the targets of the specification; give no SOURCE")
        spec = options.workspace.load()
        targets = spec_targets(spec, options.select, options.subset, options.backends)
        part = sharding.of(tuple(targets), options.workspace.log)
        if not part.targets:
            return to.write(_marked(_make_empty_audit(spec), part))
        ids = tuple(target.id for target in part.targets)
        options = replace(options, select=ids, subset=None, backends=())
    return to.write(_marked(audit(replace(options, sources=sources)), part))


def _marked(result: CommandResult[Report], part: Part) -> CommandResult[Report]:
    return replace(result, document=part.marked(result.document))


def _make_empty_audit(spec: Spec) -> CommandResult[Report]:
    """The audit of a shard without targets: there are more machines than targets."""
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.workspace import CommandResult
    from buildmatrix.reports.formats import RUN
    from buildmatrix.reports.run import assemble

    report = assemble(spec.path.name, str(load_catalogue().date))
    return CommandResult(report, 0, RUN, spec.root)


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
