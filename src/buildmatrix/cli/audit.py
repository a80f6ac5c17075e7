"""`buildmatrix audit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    Part,
    Sharding,
    load,
    option,
    selection_options,
    shard_options,
    vulnerabilities_option,
    workspace,
)
from buildmatrix.cli.output import check_formats, policy_option, report_options, write_result
from buildmatrix.cli.workspace import cache_option

if TYPE_CHECKING:
    from buildmatrix.commands.workspace import CommandResult
    from buildmatrix.matrix.model import Spec
    from buildmatrix.reports.run.model import Report


@click.command("audit")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=completing.sources)
@option(
    "-r",
    "--requirement",
    "requirements",
    multiple=True,
    metavar="FILE",
    help="Audit this requirements file: the same as requirements:FILE.",
)
@selection_options
@shard_options
@option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Judge for this backend only: rocm, or with a version, cuda12.8.",
)
@option("--python", metavar="VERSION", help="For this Python, 3.12, instead of the target's.")
@option("--platform", metavar="NAME", help="For this platform, linux/arm64.")
@option("--deep", is_flag=True, help="Read whole binaries: complete lists of architectures.")
@option("--offline", is_flag=True, help="Use caches only.")
@option("--fix", is_flag=True, help="Try the fixes of findings, and write those that work.")
@option("--dry-run", is_flag=True, help="With --fix: show the changes without writing them.")
@option(
    "--diff", "ref", metavar="REF", help="Show only findings that are new since this git revision."
)
@vulnerabilities_option
@cache_option
@report_options
@policy_option
@click.pass_obj
def audit_command(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    requirements: tuple[str, ...],
    globs: tuple[str, ...],
    subset: str | None,
    sharding: Sharding | None,
    backends: tuple[str, ...],
    python: str | None,
    platform: str | None,
    deep: bool,
    offline: bool,
    fix: bool,
    dry_run: bool,
    ref: str | None,
    no_vulnerabilities: bool,
    no_cache: bool,
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: Any,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
    policy: str | None,
) -> int:
    """Judge what would be installed, from the package index alone: no wheel is downloaded.

    SOURCE is a requirements file, a `pyproject.toml`, a lock (`pylock*.toml`, `uv.lock`,
    `poetry.lock`, `Pipfile.lock`), `pypi:NAME==VERSION` or a wheel; without one, the targets of
    the specification are audited. What is not locked is resolved for each backend.
    """
    from buildmatrix.api.judging import audit
    from buildmatrix.commands.audit.session import share_one_heap
    from buildmatrix.sources.points import spec_targets

    pairs = check_formats(formats, output)
    sources += tuple(f"requirements:{file}" for file in requirements)
    share_one_heap()
    part = Part(())
    if sharding is not None:
        if sources:
            raise UsageError("--shard divides the targets of the specification; give no SOURCE")
        spec = load(settings)
        part = sharding.of(tuple(spec_targets(spec, globs, subset, backends)), settings)
        if not part.targets:
            return write_result(_marked(_make_empty_audit(spec), part), pairs, output)
        globs, subset, backends = tuple(target.id for target in part.targets), None, ()
    result = audit(
        *sources,
        backends=backends,
        select=globs,
        subset=subset,
        python=python,
        platform=platform,
        deep=deep,
        vulnerabilities=not no_vulnerabilities,
        fix=fix,
        dry_run=dry_run,
        since=ref,
        fail_on=fail_on,
        strict=strict,
        waivers=waivers,
        baseline=baseline,
        policy=policy,
        workspace=workspace(settings, no_cache=no_cache, offline=offline),
    )
    return write_result(_marked(result, part), pairs, output)


def _marked(result: CommandResult[Report], part: Part) -> CommandResult[Report]:
    return replace(result, document=part.marked(result.document))


def _make_empty_audit(spec: Spec) -> CommandResult[Report]:
    """The audit of a shard without targets: there are more machines than targets."""
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.workspace import CommandResult
    from buildmatrix.reports.formats import RUN
    from buildmatrix.reports.run.model import assemble

    report = assemble(spec.path.name, str(load_catalogue().date))
    return CommandResult(report, 0, RUN, spec.root)
