"""`buildmatrix audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    CommandSettings,
    option,
    selection_options,
    vulnerabilities_option,
)
from buildmatrix.cli.output import check_formats, report_options, write_result
from buildmatrix.cli.scan import cache_option
from buildmatrix.cli.workspace import workspace


@click.command("audit", short_help="Show what locked wheels would bring in.")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=completing.sources)
@selection_options
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
@option("--fix", is_flag=True, help="Try the fixes of what is found, and write those that work.")
@option("--dry-run", is_flag=True, help="With --fix: show what would be written.")
@option("--diff", "ref", metavar="REF", help="Show only new since this git revision.")
@vulnerabilities_option
@cache_option
@report_options
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    sources: tuple[str, ...],
    globs: tuple[str, ...],
    subset: str | None,
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
) -> int:
    """Judge what would be installed, from the package index alone: no wheel is downloaded.

    SOURCE is a requirements file, a `pyproject.toml`, a lock (`pylock*.toml`, `uv.lock`,
    `poetry.lock`, `Pipfile.lock`), `pypi:NAME==VERSION` or a wheel; without one, the targets of
    the specification are audited. What is not locked is resolved for each backend.
    """
    from buildmatrix.api.auditing import audit
    from buildmatrix.commands.audit.malloc import share_one_heap

    pairs = check_formats(formats, output)
    share_one_heap()
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
        workspace=workspace(settings, no_cache=no_cache, offline=offline),
    )
    return write_result(result, pairs, output)
