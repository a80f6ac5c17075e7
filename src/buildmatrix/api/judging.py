"""`audit`, `scan`, `diff` and `why`, as functions, and the findings that they accept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_OK,
    BuildmatrixError,
    UndecidedError,
    UsageError,
    most_severe,
)
from buildmatrix.commands.options import (
    AuditOptions,
    CommandOptions,
    DiffOptions,
    DriftOptions,
    ImageOptions,
    ScanOptions,
    StrPath,
    argument,
    list_sources,
    option,
)
from buildmatrix.commands.workspace import CommandResult, Workspace
from buildmatrix.matrix.model import Waiver
from buildmatrix.reports.formats import DIFF, DRIFT, RUN, WHY

if TYPE_CHECKING:
    from buildmatrix.commands.audit import Results
    from buildmatrix.judge.judging import Judge
    from buildmatrix.locks.model import Lock
    from buildmatrix.matrix.model import Spec, Target
    from buildmatrix.reports.diff import Comparison, Drifts
    from buildmatrix.reports.run import Report
    from buildmatrix.reports.why import Answer
    from buildmatrix.sources.model import Facts


def policy_of(text: str | None, workspace: Workspace) -> Spec | None:
    """Load the specification whose policy and waivers count: a file, or ours at a git revision."""
    if text is None:
        return None
    if Path(text).is_file():
        return workspace.load(Path(text))
    from buildmatrix.commands.git_revision import extract_revision

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
    from buildmatrix.reports.saved import list_gone, read

    return list_gone(report, read(path))


def known_findings(path: Path | None) -> frozenset[str]:
    """The fingerprints of the findings in a saved report."""
    if path is None:
        return frozenset()
    from buildmatrix.reports.saved import read

    return frozenset(finding.fingerprint for finding in read(path).findings)


def audit(options: AuditOptions) -> CommandResult[Report]:
    """Judge what would be installed, from the package index alone: no wheel is downloaded.

    What could not be resolved or read is in the report, and its exit code in the result. Raises a
    `BuildmatrixError` where there is no report at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.audit import AuditInputs, AuditSession, check_usable, judge_for
    from buildmatrix.locks.index.reading import CachingReader
    from buildmatrix.matrix.model import bare_spec
    from buildmatrix.reports.run import exit_code

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
            AuditInputs(sources, spec, spec.root if spec is not None and not sources else Path()),
            CachingReader(reader) if fix or since is not None else reader,
            judge_of(spec),
            stack.enter_context(workspace.progress()),
            options,
            judge_of,
        )
        # Before anything else: what cannot be compared need not be audited.
        then = None
        if since is not None:
            from buildmatrix.commands.audit_diff import extract_inputs, reduce_report

            then = stack.enter_context(extract_inputs(session.inputs, since))
        outcomes: Results = session.resolve()
        check_usable(outcomes)
        report = session.report(outcomes)
        if fix:
            from buildmatrix.commands.fixing import fixed

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
    from buildmatrix.reports.run import exit_code

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
    report = judge_facts(facts, options, date.today(), more, fingerprints, own, declared, lock)
    report = add_gone(report, options.baseline)
    return CommandResult(report, exit_code(report, options.fail_on, options.strict), RUN, Path())


def judge_facts(
    facts: Facts,
    options: ScanOptions,
    today: date,
    waivers: Sequence[Waiver] = (),
    baseline: Collection[str] = (),
    data_files: Sequence[Path] = (),
    declared: tuple[Spec, Target] | None = None,
    lock: Lock | None = None,
) -> Report:
    """Judge the facts of a source against a backend.

    `waivers`, and the fingerprints of a `baseline`, accept findings. `data_files` add to the
    catalogue. `declared` is a target of a specification, as which it is judged instead, with the
    node classes, the policy and the waivers there. Raises `UsageError` when nothing says which
    backend is meant. `lock`: the lock of a target that was built.
    """
    from buildmatrix.catalogue.lookup import unknown_backend
    from buildmatrix.judge.judging import Judge
    from buildmatrix.judge.model import GATES, TargetResult
    from buildmatrix.matrix.model import bare_spec, bare_target
    from buildmatrix.reports.run import assemble

    chosen = declared[1].backend if declared is not None else options.backend or facts.backend
    if chosen is None:
        raise UsageError(f"{facts.label} does not say which backend it is for; give --backend")
    if declared is not None:
        spec, target = declared
        spec = replace(spec, waivers=(*spec.waivers, *waivers))
    else:
        target = bare_target(facts.label, chosen, options.runtime)
        spec = replace(
            bare_spec(target),
            waivers=tuple(waivers),
            catalogue=tuple(str(path.absolute()) for path in data_files),
        )
    judge = Judge(spec, options.fail_on, today, baseline)
    if chosen not in judge.backends:
        raise unknown_backend(chosen, judge.backends)
    judgement = judge.image(target, facts.inventory, lock)
    findings = judgement.findings
    result = TargetResult(
        id=target.id,
        backend=chosen,
        gates={gate: judge.gate(findings) if gate == "scan" else "not-run" for gate in GATES},
        image=facts.image,
        size=facts.inventory.stats.bytes_total,
        seconds=facts.inventory.stats.seconds,
        nodes=judgement.fits or None,
        composition=judgement.composition,
    )
    return assemble(
        facts.label,
        judge.catalogue_date,
        targets=[result],
        findings=(*findings, *judge.stale_waivers(findings, ())),
        verdicts=[replace(verdict, targets=(target.id,)) for verdict in judgement.verdicts],
        inventories=[facts.inventory],
    )


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


def diff(options: DiffOptions) -> CommandResult[Comparison]:
    """Show what differs between two sources, and fail where a finding is new.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands import diff as command
    from buildmatrix.commands.diff_sources import DiffSettings, read_sides

    if options.subset is not None:
        raise UsageError("--subset belongs to --targets; choose targets of a report with --select")
    workspace, fail_on, (before, after) = (
        options.workspace,
        options.fail_on,
        list_sources((options.before, options.after)),
    )
    spec = workspace.declared()
    first, second = (workspace.parse(source, "diff", spec) for source in (before, after))
    command.check_kinds((before, first.is_wheel), (after, second.is_wheel))
    with workspace.reading(
        platform=options.platform, deep=options.deep, python=options.python
    ) as usual:
        settings = DiffSettings(
            options,
            replace(usual, layers=options.layers),
            spec,
            more_waivers(options.waivers, None),
            workspace.data_files(),
            date.today(),
        )
        sides = read_sides(first, second, settings)
    comparison = command.compare_sides(*sides)
    if comparison.findings is None and fail_on not in (None, "never"):
        # The gate that was asked for cannot hold, so this is not a success.
        raise UsageError(f"--fail-on {fail_on}: {comparison.notes[0]}")
    return CommandResult(comparison, command.exit_code(comparison, fail_on or "error"), DIFF)


def drift(options: DriftOptions) -> CommandResult[Drifts]:
    """Show which distributions differ in version between targets without a reason.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.drift import compare_targets as compared
    from buildmatrix.commands.drift import exit_code
    from buildmatrix.sources.resolved import resolve_sources

    workspace = options.workspace
    sources = list_sources(() if options.source is None else options.source)
    spec = None
    if not sources or workspace.specification.is_file():
        spec = workspace.load()
    with workspace.progress() as display:
        resolved = resolve_sources(
            sources,
            spec,
            backends=[options.backend] if options.backend else [],
            globs=options.select,
            subset=options.subset,
            python=options.python,
            root=spec.root if spec is not None and not sources else Path(),
            cache=workspace.user_cache(),
            offline=workspace.offline,
            progress=display,
        )
    if len(resolved) < 2:
        raise UsageError(
            "drift is between targets, and only one was chosen; choose more with --select"
        )
    drifts = compared(resolved, spec.catalogue_files if spec is not None else ())
    return CommandResult(drifts, exit_code(drifts, resolved, options.fail_on), DRIFT)


#: Nodes that one answer shows in full; `every` shows more.
SUBJECTS, ALL_SUBJECTS = 6, 50
#: Chains to one thing, with `every`.
CHAINS = 200

_UNREAD_SYMBOLS = "which symbols make links necessary (--symbols exports the image to read them)"


@dataclass(frozen=True, kw_only=True)
class WhyOptions(CommandOptions, ImageOptions):
    """Options of `why`."""

    source: StrPath = field(
        kw_only=False,
        metadata=argument("what `scan` reads, a target, `lock:FILE`, ...", completes="sources"),
    )
    library: str = field(
        kw_only=False,
        metadata=argument(
            "a soname, a pattern, a path, a distribution, a vendor or a backend",
            completes="libraries",
        ),
    )
    every: bool = option(False, "Every chain, not only the shortest.", "--all")
    symbols: bool | None = option(
        None,
        "Read the symbols that each link is used for.  [default: if files are at hand]",
        "--symbols/--no-symbols",
    )
    #: True tries again where an earlier answer could not say.
    layers: bool | None = option(
        None,
        "Show the layer of a target's image that brought it; exports the image once.  "
        "[default: layers]",
        "--layers/--no-layers",
    )
    lock: Path | None = option(None, "Lock from which SOURCE was installed.")
    backend: str | None = option(
        None, "For `lock:` and similar sources: the backend.", metavar="NAME"
    )
    select: str | None = option(
        None, "For `lock:` and similar sources: the target.", metavar="TARGET"
    )
    deep: bool = option(False, "For `lock:` and similar sources: read whole wheels.")


def why(options: WhyOptions) -> CommandResult[Answer]:
    """Show why a library is in a source: who asked for it, who links it, where the loader finds it.

    Raises a `BuildmatrixError` where there is no answer at all; its `exit_code` says of which kind.
    """
    from buildmatrix.commands.why import answer_question, load_graph
    from buildmatrix.sources.model import SHALLOW

    library, every, symbols = options.library, options.every, options.symbols
    if not library.strip():
        raise UsageError("LIBRARY is empty; name a library, a distribution, a path or a backend")
    workspace = options.workspace
    spec = workspace.declared()
    parsed = workspace.parse(options.source, "why", spec)
    with workspace.reading(platform=options.platform, deep=options.deep) as usual:
        reading = replace(
            usual,
            layers=options.layers is not False,
            again=options.layers is True,
            spec=spec,
            lock=options.lock,
            select=options.select,
            backend=options.backend,
        )
        graph = load_graph(parsed, reading)
    subjects = ALL_SUBJECTS if every else SUBJECTS
    answer = answer_question(graph, library, every=every, subjects=subjects, most=CHAINS)
    if any(edge.kind == "needs" for subject in answer.subjects for edge in subject.links):
        tree, is_wanted = parsed.open(reading), parsed.is_near if symbols is None else symbols
        if tree is None and is_wanted:
            raise UsageError(
                "--symbols reads whole files, and of this SOURCE only their facts are known; name "
                "an image, a folder, a wheel or a target"
            )
        if tree is not None and is_wanted:
            from buildmatrix.commands.why import add_symbols

            answer = add_symbols(answer, tree, every=every)
        elif tree is not None and symbols is None:
            answer = replace(answer, notes=(*answer.notes, _UNREAD_SYMBOLS))
    is_partly_read = bool(graph.unread) or SHALLOW in graph.graph.notes
    is_unknown = is_partly_read and not answer.subjects
    return CommandResult(answer, UndecidedError.exit_code if is_unknown else EXIT_OK, WHY)
