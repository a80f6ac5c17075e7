"""Accepted findings, and BM901: waivers that expired or cover nothing.

A waiver covers a finding when all that it says fits: the rule, the target, the distribution, and
every file of the finding. It holds up to and including the day `expires`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import date

from buildmatrix.catalogue.names import matches, matches_any
from buildmatrix.errors import Problem, SpecError
from buildmatrix.rules.findings import run_finding
from buildmatrix.rules.model import Acceptance, Finding, Fix, Severity
from buildmatrix.rules.registry import BY_CODE
from buildmatrix.spec.model import Waiver


def check_rules(waivers: Iterable[Waiver]) -> None:
    """Raise `SpecError` for waivers of rules that do not exist."""
    problems = [
        Problem(
            f"there is no rule {waiver.rule}",
            waiver.position.file,
            waiver.position.line,
            hint="`buildmatrix rules` lists all of them",
        )
        for waiver in waivers
        if waiver.rule not in BY_CODE
    ]
    if problems:
        raise SpecError(problems)


def apply(
    findings: Iterable[Finding], waivers: Iterable[Waiver], today: date
) -> tuple[Finding, ...]:
    """The same findings; those that a waiver covers today carry its reason."""
    valid = [waiver for waiver in waivers if today <= waiver.expires]
    return tuple(
        next(
            (
                replace(finding, waived=_reason(waiver), acceptance=_acceptance(waiver))
                for waiver in valid
                if covers(waiver, finding)
            ),
            finding,
        )
        for finding in findings
    )


def check(
    findings: Collection[Finding],
    waivers: Iterable[Waiver],
    today: date,
    judged: Collection[str],
) -> tuple[Finding, ...]:
    """BM901 for a whole run, in the order of the waivers.

    `judged` are the targets that went through all gates. Whether a waiver is of use is only known
    when every target was, so give none of them for a run that looked at a part.
    """
    return tuple(_stale(findings, waivers, today, judged))


def covers(waiver: Waiver, finding: Finding) -> bool:
    """Return True if a waiver is about a finding, whatever its dates."""
    if not matches(waiver.rule, finding.rule):
        return False
    if waiver.select and not matches_any(waiver.select, finding.target):
        return False
    if waiver.distribution is not None and not any(
        matches(waiver.distribution, name)
        for name in (finding.distribution or "", *finding.distributions)
    ):
        return False
    if waiver.path is None:
        return True
    paths = {item.path for item in finding.evidence if item.path} | (
        {finding.path} if finding.path else set()
    )
    return bool(paths) and all(matches(waiver.path, path) for path in paths)


def ran_out(
    rule: str, distribution: str | None, acceptance: Acceptance | None, today: date
) -> str | None:
    """Return a sentence if the acceptance of a finding has expired; else None."""
    if acceptance is None or acceptance.expires is None:
        return None
    try:
        over = date.fromisoformat(acceptance.expires) < today
    except ValueError:
        over = True
    if not over:
        return None
    owner = f" by {acceptance.owner}" if acceptance.owner else ""
    of = f" of {distribution}" if distribution else ""
    return (
        f"{rule}{of} was accepted{owner} until {acceptance.expires}, which is over: "
        f"{acceptance.reason}"
    )


def _reason(waiver: Waiver) -> str:
    return f"{waiver.reason} ({waiver.owner}, until {waiver.expires.isoformat()})"


def _acceptance(waiver: Waiver) -> Acceptance:
    return Acceptance(
        by="waiver",
        reason=waiver.reason,
        owner=waiver.owner,
        expires=waiver.expires.isoformat(),
    )


def _stale(
    findings: Collection[Finding],
    waivers: Iterable[Waiver],
    today: date,
    judged: Collection[str],
) -> Iterator[Finding]:
    for waiver in waivers:
        used = any(covers(waiver, finding) for finding in findings)
        if used and today > waiver.expires:
            yield _finding(
                waiver,
                "warning",
                f"the waiver for {waiver.rule} ran out on {waiver.expires.isoformat()}, and what "
                f"it covered is still there; {waiver.owner} accepted it: {waiver.reason}",
                "fix what it covers, or give it a new `expires`",
            )
        elif not used and any(not waiver.select or matches_any(waiver.select, t) for t in judged):
            yield _finding(
                waiver,
                "note",
                f"the waiver for {waiver.rule} ({waiver.position}) covers nothing",
                "delete it",
            )


def _finding(waiver: Waiver, severity: Severity, message: str, advice: str) -> Finding:
    return run_finding(
        "BM901",
        message,
        severity=severity,
        path=waiver.position.file,
        place=str(waiver.position),
        identity="|".join(
            (waiver.rule, *waiver.select, waiver.distribution or "", waiver.path or "")
        ),
        fix=Fix("waive", advice),
    )
