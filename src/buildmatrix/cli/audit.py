"""`buildmatrix audit`."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buildmatrix.cli.cache import user_cache
from buildmatrix.cli.options import (
    CommandSettings,
    load,
    option,
    selection_options,
)
from buildmatrix.cli.output import (
    check_formats,
    known_findings,
    more_waivers,
    report_options,
    write_report,
)
from buildmatrix.cli.progress import progress
from buildmatrix.cli.scan import cache_option
from buildmatrix.cli.vulnerabilities import asking, vulnerabilities_option
from buildmatrix.cli.wheels import wheel_reader
from buildmatrix.errors import BuildmatrixError, UndecidedError, UsageError, most_severe

if TYPE_CHECKING:
    from buildmatrix.commands.audit.session import AuditSession, Results
    from buildmatrix.commands.diff.git_revision import Revision
    from buildmatrix.judge import Judge
    from buildmatrix.spec.model import Spec


@click.command("audit", short_help="Show what locked wheels would bring in.")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
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
    from datetime import date

    from buildmatrix.commands.audit.malloc import share_one_heap
    from buildmatrix.commands.audit.session import AuditInputs, AuditSession
    from buildmatrix.commands.audit.subject import check_usable, judge_for
    from buildmatrix.index.reading import CachingReader
    from buildmatrix.reports.run.model import exit_code

    if dry_run and not fix:
        raise UsageError("--dry-run belongs to --fix; give both, or neither")
    if fix and ref is not None:
        raise UsageError("--fix and --diff are mutually exclusive: fix first, then compare")
    pairs = check_formats(formats, output)
    spec = _spec(settings, bool(sources))
    accepted = more_waivers(waivers, [target.id for target in spec.targets] if spec else None)
    fingerprints = known_findings(baseline)

    def judge_of(spec: Spec | None) -> Judge:
        return judge_for(spec, accepted, fail_on, date.today(), fingerprints)

    share_one_heap()
    cache = user_cache(no_cache)
    with ExitStack() as stack:
        reader = stack.enter_context(wheel_reader(offline, cache))
        session = AuditSession(
            AuditInputs(sources, spec, spec.root if spec is not None and not sources else Path()),
            CachingReader(reader) if fix or ref is not None else reader,
            judge_of(spec),
            stack.enter_context(progress(settings)),
            load=lambda path: load(replace(settings, file=path)),
            judge_of=judge_of,
            backends=backends,
            globs=globs,
            subset=subset,
            python=python,
            platform=platform,
            cache=cache,
            offline=offline,
            deep=deep,
            strict=strict,
            asking=asking(no_vulnerabilities, offline, cache),
        )
        # Before anything else: what cannot be compared need not be audited.
        then = stack.enter_context(_inputs_at(session, ref)) if ref is not None else None
        outcomes: Results = session.resolve()
        check_usable(outcomes)
        report = session.report(outcomes)
        if fix:
            from buildmatrix.commands.audit.fix import fixed

            outcomes, report = fixed(session, outcomes, report, dry_run=dry_run)
        if ref is not None and then is not None:
            from buildmatrix.commands.diff.revision import since

            report = since(session, outcomes, report, ref, then)
    write_report(report, pairs, output, session.inputs.root)
    codes = [error.exit_code for error in outcomes if isinstance(error, BuildmatrixError)]
    decided = [code for code in codes if code != UndecidedError.exit_code]
    return most_severe([*decided, exit_code(report, fail_on, strict)])


def _spec(settings: CommandSettings, has_sources: bool) -> Spec | None:
    """The specification; a source needs none, but is held against one that is there."""
    if has_sources and not settings.file.exists():
        return None
    return load(settings)


def _inputs_at(session: AuditSession, ref: str) -> AbstractContextManager[Revision]:
    from buildmatrix.commands.diff.revision import inputs_at

    return inputs_at(session.inputs, ref)
