"""Apply waivers, a baseline and the policy's severities to findings; BM901."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import date

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.catalogue.model import matches, matches_any
from buildmatrix.judge.findings import finding as make_finding
from buildmatrix.judge.model import SEVERITY_RANK, Acceptance, Finding, Fix, Severity
from buildmatrix.judge.registry import BY_CODE, rule_of
from buildmatrix.matrix.document import did_you_mean
from buildmatrix.matrix.model import FailOn as FailOn
from buildmatrix.matrix.model import Policy, RuleSeverity, Waiver

# BM901: waivers that expired or cover nothing.
#
# A waiver covers a finding if its rule, its target, its distribution and every file of the finding
# match. It is valid through the day `expires`.


def check_waived_rules(waivers: Iterable[Waiver]) -> None:
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


def apply_waivers(
    findings: Iterable[Finding], waivers: Iterable[Waiver], today: date
) -> tuple[Finding, ...]:
    """The same findings; those that a waiver covers today carry its reason."""
    valid = [waiver for waiver in waivers if today <= waiver.expires]
    return tuple(_apply_waivers(finding, valid) for finding in findings)


def _apply_waivers(finding: Finding, valid: Iterable[Waiver]) -> Finding:
    waiver = next((waiver for waiver in valid if covers(waiver, finding)), None)
    if waiver is None:
        return finding
    expires = waiver.expires.isoformat()
    return replace(
        finding,
        waived=f"{waiver.reason} ({waiver.owner}, until {expires})",
        acceptance=Acceptance(
            by="waiver", reason=waiver.reason, owner=waiver.owner, expires=expires
        ),
    )


def check_expired_or_unused_waiver(
    findings: Collection[Finding], waivers: Iterable[Waiver], today: date, judged: Collection[str]
) -> tuple[Finding, ...]:
    """BM901 for a whole run, in the order of the waivers.

    `judged` are the targets that went through all gates. Whether a waiver is of use is only known
    when every target was, so give none of them for a run that looked at a part.
    """
    stale = []
    for waiver in waivers:
        used = any(covers(waiver, finding) for finding in findings)
        severity: Severity
        if used and today > waiver.expires:
            severity = "warning"
            message = (
                f"the waiver for {waiver.rule} expired on {waiver.expires.isoformat()}, and "
                f"its findings remain; {waiver.owner} accepted them: {waiver.reason}"
            )
            advice = "fix its findings, or give it a new `expires`"
        elif not used and any(not waiver.select or matches_any(waiver.select, t) for t in judged):
            severity = "note"
            message = f"the waiver for {waiver.rule} ({waiver.position}) covers nothing"
            advice = "delete it"
        else:
            continue
        about = (waiver.rule, *waiver.select, waiver.distribution or "", waiver.path or "")
        stale.append(
            make_finding(
                "BM901",
                None,
                message,
                severity=severity,
                path=waiver.position.file,
                chain=(str(waiver.position),),
                fix=Fix("waive", advice),
                identity="|".join(about),
            )
        )
    return tuple(stale)


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
        f"{rule}{of} was accepted{owner} until {acceptance.expires}, which has passed: "
        f"{acceptance.reason}"
    )


# Findings of an earlier report: shown, but they fail nothing


#: Reason of findings in the baseline; others have the reason of a waiver.
BASELINE_REASON = "it is in the baseline report"
_BASELINE_ACCEPTANCE = Acceptance(by="baseline", reason=BASELINE_REASON)


def apply_baseline(
    findings: Iterable[Finding], fingerprints: Collection[str]
) -> tuple[Finding, ...]:
    """Return the findings, with open ones accepted if their fingerprint is in `fingerprints`.

    Fingerprints hold no target and no version: a baseline outlives upgrades and renamed targets.
    """
    return tuple(
        replace(finding, waived=BASELINE_REASON, acceptance=_BASELINE_ACCEPTANCE)
        if finding.waived is None and finding.fingerprint in fingerprints
        else finding
        for finding in findings
    )


def is_from_baseline(finding: Finding) -> bool:
    """Return True if a finding is accepted only because the baseline has it."""
    return finding.waived == BASELINE_REASON


# `[policy.severity]` replaces a rule's own severity.
#
# It is an upper limit: a finding that the rule itself judged milder stays as mild, so a policy
# never makes an error of something that a rule let pass for a reason. Findings of a rule that is
# `off` are shown as accepted. A finding with a changed severity states the rule's own.


#: The rule with a severity of its own, in `[policy.vulnerabilities]`.
_VULNERABILITY = "BM801"


def check_severities(policy: Policy) -> None:
    """Raise `SpecError` for unknown rules, and for severities that a rule may not have."""
    problems = [
        Problem(message, entry.position.file, entry.position.line, entry.position.column, hint)
        for entry in policy.severities
        for message, hint in _severity_mistakes(entry)
    ]
    if problems:
        raise SpecError(problems)


def apply_policy(findings: Iterable[Finding], policy: Policy) -> tuple[Finding, ...]:
    """Return findings with the policy's severities; those of rules that are off are accepted."""
    return tuple(_apply_policy(finding, policy) for finding in findings)


def _apply_policy(finding: Finding, policy: Policy) -> Finding:
    entry = policy.severity(finding.rule, finding.backend)
    if entry is None:
        return finding
    if entry.severity == "off":
        if finding.waived is not None:
            return finding
        reason = f"{finding.rule} is off under [policy.severity] ({entry.position})"
        accepted = Acceptance(by="policy", reason=reason)
        return replace(finding, waived=reason, acceptance=accepted)
    judged = finding.judged or finding.severity
    # A finding that its rule judged milder than usual stays as mild.
    is_mild = SEVERITY_RANK[judged] < SEVERITY_RANK[rule_of(finding.rule).severity]
    severity = (
        min(judged, entry.severity, key=SEVERITY_RANK.__getitem__) if is_mild else entry.severity
    )
    return replace(finding, severity=severity, judged=judged if severity != judged else None)


def _severity_mistakes(entry: RuleSeverity) -> Iterator[tuple[str, str]]:
    rule = BY_CODE.get(entry.rule)
    if rule is None:
        hint = did_you_mean(entry.rule, BY_CODE, "rules")
        yield f"there is no rule {entry.rule}", f"{hint} `buildmatrix rules` lists all of them"
    elif rule.code == _VULNERABILITY:
        yield (
            f"{rule.code} has its severity under [policy.vulnerabilities]",
            f'write `severity = "{entry.severity}"` there'
            if entry.severity != "off"
            else "accept single advisories with `ignore` there",
        )
    elif rule.unknown and entry.severity in ("note", "off"):
        yield (
            f"{rule.code} ({rule.name}) says what is not known, and cannot be made `"
            f"{entry.severity}`",
            "accept single findings with a [[waive]]",
        )
    elif entry.severity != "off" and SEVERITY_RANK[entry.severity] > SEVERITY_RANK[rule.at_most]:
        yield (
            f"{rule.code} ({rule.name}) cannot be more than `{rule.at_most}`: it is about what "
            "works without the other backend",
            "forbid what must not be there with `forbid-libraries` or `forbid-distributions`",
        )


def fails(finding: Finding, fail_on: FailOn = "error") -> bool:
    """Return True if a finding makes a run fail that fails on `fail_on`."""
    if fail_on == "never" or finding.waived is not None:
        return False
    return SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[fail_on]


def leaves_open(finding: Finding) -> bool:
    """Return True if a finding says that something is unknown which was not accepted."""
    is_open = rule_of(finding.rule).is_open
    return is_open and finding.severity != "note" and finding.waived is None
