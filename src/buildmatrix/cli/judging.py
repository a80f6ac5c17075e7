"""`audit`, `scan`, `diff` and `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from buildmatrix.api.judging import WhyOptions, why
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    cache_option,
    engine_option,
    option,
    stack_options,
    store_option,
    take,
    wheels_offline_option,
)
from buildmatrix.cli.output import Output, report_output, writes, writes_one
from buildmatrix.cli.shards import Part, Sharding, shard_options
from buildmatrix.commands.options import (
    AuditOptions,
    ComparisonOptions,
    DiffOptions,
    DriftOptions,
    ScanOptions,
    list_sources,
)
from buildmatrix.reports.formats import DIFF, WHY, names

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


@click.command("diff")
@click.argument("sources", nargs=-1, metavar="[BEFORE AFTER]", shell_complete=completing.sources)
@take(
    ComparisonOptions,
    select=option(
        "--targets",
        "across",
        is_flag=True,
        help="Compare the targets of the specification with each other, instead of two SOURCEs.",
    ),
    platform=stack_options(
        option("--all", "every", is_flag=True, help="List everything."),
        option("--offline", is_flag=True, help="Use caches only."),
    ),
    fail_on=stack_options(cache_option, writes(DIFF)),
    last=engine_option,
)
def diff_command(
    options: ComparisonOptions, /, sources: tuple[str, ...], across: bool, every: bool, to: Output
) -> int:
    """Show the differences between BEFORE and AFTER, and fail if a finding is new.

    Each is an image, a saved image, a folder, a wheel, a lock, requirements, a target that was
    built, or a saved report: what `scan` and `audit` read, `target:ID` and `report:FILE`. Nothing
    of it is executed.

    With --targets: which distributions differ in version between the targets of the specification,
    or of one SOURCE between backends, without a reason.
    """
    from buildmatrix.api import judging

    if across:
        if len(sources) > 1:
            raise UsageError(
                "diff --targets compares targets with each other: name one SOURCE or none, not "
                f"{len(sources)}"
            )
        drifts = judging.drift(
            DriftOptions(
                *sources,
                backend=options.backend,
                select=options.select,
                subset=options.subset,
                python=options.python,
                fail_on=options.fail_on or "error",
                workspace=options.workspace,
            )
        )
        return to.write(drifts, every=every)
    if len(sources) != 2:
        raise UsageError(
            f"diff compares two things, and {len(sources) or 'none'} "
            f"{'is' if len(sources) == 1 else 'are'} named: write `buildmatrix diff BEFORE AFTER`, "
            "or `buildmatrix diff --targets` for the targets of the specification"
        )
    return to.write(judging.diff(DiffOptions(*sources, **vars(options))), every=every)


@click.command("why")
@take(
    WhyOptions,
    symbols=writes_one(names(WHY), "dot and mermaid draw the chains."),
    platform=wheels_offline_option,
    last=stack_options(cache_option, engine_option),
)
def why_command(options: WhyOptions, /, to: Output) -> int:
    """Show why LIBRARY is in SOURCE: who asked for it, who links it, where the loader finds it.

    LIBRARY is a soname, a pattern, a path, a distribution, a vendor or a backend: `libcudart`,
    `libcudart.so.12`, `'nvidia-*'`, `cuda`. SOURCE is what `scan` reads, a target of the
    specification, `lock:FILE` or `report:FILE`. Nothing of it is executed.

    The exit code is 0 also where nothing matches: that is an answer. It is 3 where nothing matches
    and something was not read.
    """
    return to.write(why(options))
