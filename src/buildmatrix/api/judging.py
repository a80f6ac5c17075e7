"""`audit` and `scan`, as functions, and the findings that they accept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError, UsageError, most_severe
from buildmatrix.commands.options import AuditOptions, ScanOptions, list_sources
from buildmatrix.commands.workspace import CommandResult, Workspace
from buildmatrix.matrix.model import Waiver
from buildmatrix.reports.formats import RUN

if TYPE_CHECKING:
    from buildmatrix.commands.audit.session import Results
    from buildmatrix.judge.judging import Judge
    from buildmatrix.matrix.model import Spec, Target
    from buildmatrix.reports.run.model import Report


def policy_of(text: str | None, workspace: Workspace) -> Spec | None:
    """Load the specification whose policy and waivers count: a file, or ours at a git revision."""
    if text is None:
        return None
    if Path(text).is_file():
        return workspace.load(Path(text))
    from buildmatrix.commands.diff.git_revision import extract_revision

    own = workspace.specification
    with extract_revision(own.absolute().parent, text, (own.name,)) as revision:
        path = revision.folder / own.name
        if not path.is_file():
            raise UsageError(f"--policy {text}: {own.name} does not exist at that revision")
        return workspace.load(path)


def replace_policy(spec: Spec, other: Spec | None) -> Spec:
    """`spec` with the policy, the waivers and the accepted checks of `other`, if there is one."""
    if other is None:
        return spec
    checks = {target.id: target.check_waivers for target in other.targets}
    return replace(
        spec,
        policy=other.policy,
        waivers=other.waivers,
        targets=tuple(
            replace(target, check_waivers=checks.get(target.id, ())) for target in spec.targets
        ),
    )


def more_waivers(path: Path | None, ids: Sequence[str] | None) -> tuple[Waiver, ...]:
    """The waivers in a file; `ids` are the targets of the specification, if there is one."""
    if path is None:
        return ()
    from buildmatrix.judge.acceptance import check_waived_rules
    from buildmatrix.matrix.load import load_waivers

    waivers = load_waivers(path, ids)
    check_waived_rules(waivers)
    return waivers


def add_gone(report: Report, path: Path | None) -> Report:
    """Return the report with the baseline's findings that are gone."""
    if path is None:
        return report
    from buildmatrix.reports.run.saved import list_gone, read

    return list_gone(report, read(path))


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of the findings in a saved report."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.run.saved import read

    return frozenset(finding.fingerprint for finding in read(path).findings)


def audit(options: AuditOptions) -> CommandResult[Report]:
    """Judge what would be installed, from the package index alone: no wheel is downloaded.

    What could not be resolved or read is in the report, and its exit code in the result. Raises a
    `BuildmatrixError` where there is no report at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.audit.session import (
        AuditInputs,
        AuditSession,
        check_usable,
        judge_for,
    )
    from buildmatrix.locks.index.reading import CachingReader
    from buildmatrix.matrix.model import bare_spec
    from buildmatrix.reports.run.model import exit_code

    fix, since = options.fix, options.since
    if options.dry_run and not fix:
        raise UsageError("--dry-run belongs to --fix; give both, or neither")
    if fix and since is not None:
        raise UsageError("--fix and --diff are mutually exclusive: fix first, then compare")
    workspace, sources = options.workspace, list_sources(options.sources)
    # A source needs no specification, but is held against one that is there.
    is_bare = bool(sources) and not workspace.specification.exists()
    spec = None if is_bare else workspace.load()
    accepted = more_waivers(
        options.waivers, [target.id for target in spec.targets] if spec else None
    )
    fingerprints = known_findings(options.baseline)
    other = policy_of(options.policy, workspace)

    def judge_of(spec: Spec | None) -> Judge:
        if other is not None:
            spec = replace_policy(spec or bare_spec(), other)
        return judge_for(spec, accepted, options.fail_on, date.today(), fingerprints)

    with ExitStack() as stack:
        reader = stack.enter_context(workspace.wheels())
        session = AuditSession(
            AuditInputs(
                sources,
                spec,
                spec.root if spec is not None and not sources else Path(),
            ),
            CachingReader(reader) if fix or since is not None else reader,
            judge_of(spec),
            stack.enter_context(workspace.progress()),
            options,
            judge_of,
        )
        # Before anything else: what cannot be compared need not be audited.
        then = None
        if since is not None:
            from buildmatrix.commands.diff.revision import extract_inputs, reduce_report

            then = stack.enter_context(extract_inputs(session.inputs, since))
        outcomes: Results = session.resolve()
        check_usable(outcomes)
        report = session.report(outcomes)
        if fix:
            from buildmatrix.commands.audit.fixing import fixed

            outcomes, report = fixed(session, outcomes, report, dry_run=options.dry_run)
        if since is not None and then is not None:
            report = reduce_report(session, outcomes, report, since, then)
    codes = [error.exit_code for error in outcomes if isinstance(error, BuildmatrixError)]
    decided = [code for code in codes if code != UndecidedError.exit_code]
    code = most_severe([*decided, exit_code(report, options.fail_on, options.strict)])
    return CommandResult(add_gone(report, options.baseline), code, RUN, session.inputs.root)


def scan(options: ScanOptions) -> CommandResult[Report]:
    """Read what lies in an image, a folder or a wheel, and judge it. Nothing of it is executed.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.scan import scan as judge
    from buildmatrix.reports.run.model import exit_code

    source, workspace = options.source, options.workspace
    parsed = workspace.parse(source, "scan", workspace.declared())
    built = parsed.target()
    is_narrowed = options.backend is not None or options.runtime != "any"
    declared: tuple[Spec, Target] | None = None
    if built is not None:
        if options.select is not None or is_narrowed:
            raise UsageError(
                f"{source} is a target, which says the backend and its version; leave --select, "
                "--backend and --runtime out"
            )
        declared = built[1], built[0]
    elif options.select is not None:
        if is_narrowed:
            raise UsageError("--select says the backend and its version; leave the others out")
        declared = _declared(workspace, options.select)
    if declared is not None:
        spec, target = declared
        declared = replace_policy(spec, policy_of(options.policy, workspace)), target
    elif options.policy is not None:
        raise UsageError("--policy is for a target of a specification; give --select as well")
    more, fingerprints = more_waivers(options.waivers, None), known_findings(options.baseline)
    with workspace.reading(platform=options.platform) as usual:
        facts = parsed.facts(replace(usual, data_files=tuple, layers=False))
    lock = None if built is None else facts.lock
    own = workspace.data_files()
    report = judge(facts, options, date.today(), more, fingerprints, own, declared, lock)
    report = add_gone(report, options.baseline)
    return CommandResult(report, exit_code(report, options.fail_on, options.strict), RUN, Path())


def _declared(workspace: Workspace, select: str) -> tuple[Spec, Target]:
    """Return the selected target of the specification."""
    from buildmatrix.matrix.matrix import select as selected

    spec = workspace.load()
    targets = selected(spec, [select], None)
    if len(targets) > 1:
        raise UsageError(
            f"--select {select} fits {len(targets)} targets ({targets[0].id}, {targets[1].id}, "
            "...); name one of them"
        )
    return spec, targets[0]
