"""`audit --fix`: fixes tried, those that work written, and the outcome audited."""

from __future__ import annotations

from dataclasses import replace

from buildmatrix.commands.audit.fixing import Outcome, try_fixes
from buildmatrix.commands.audit.patches import write
from buildmatrix.commands.audit.session import AuditInputs, AuditSession, Results, common_python
from buildmatrix.reports.run.model import FixesTried, Report


def fixed(
    session: AuditSession, results: Results, report: Report, *, dry_run: bool
) -> tuple[Results, Report]:
    """Try the fixes of `report`, which is the audit of `results`, and write those that work.

    Returns what is there afterwards, and its audit; with `dry_run`, or where nothing can be
    written, the same as before with what came of the tries. Raises `UndecidedError` when a file
    changed meanwhile; then nothing was written.
    """
    outcome = try_fixes(session, results, report)
    if dry_run or outcome.draft is None or not outcome.draft.texts:
        return results, outcome.report
    return _written(session, results, outcome)


def _written(session: AuditSession, results: Results, outcome: Outcome) -> tuple[Results, Report]:
    assert outcome.draft is not None
    write(outcome.draft.texts.values())
    fixes_tried = outcome.report.fixes or FixesTried()
    notes = list(fixes_tried.notes)
    inputs = session.inputs
    if not inputs.sources and inputs.spec is not None:
        inputs = AuditInputs((), session.load(inputs.spec.path), inputs.root)
        spec = inputs.spec
        if spec is not None and any(
            (spec.root / target.lock_file).exists() for target in spec.targets
        ):
            notes.append(
                f"this is what the locks will be: they are older than {spec.path.name} now, so "
                "run `buildmatrix lock`"
            )
    again = session.resolve(
        inputs,
        python=common_python(results) if inputs.sources else None,
        relock=not inputs.sources,
    )
    report = session.report(again)
    tried = {
        (finding.target, finding.fingerprint): finding.fix for finding in outcome.report.findings
    }
    return again, replace(
        report,
        findings=tuple(
            replace(finding, fix=tried.get((finding.target, finding.fingerprint)) or finding.fix)
            for finding in report.findings
        ),
        fixes=replace(fixes_tried, written=True, notes=tuple(notes)),
    )
