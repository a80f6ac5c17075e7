"""Severities that the policy gives to findings: `[policy.severity]`.

The policy's severity replaces the rule's own. It is the maximum for findings of the rule; a finding
that the rule itself judged milder than its own severity stays as mild. So a policy never makes an
error of something that a rule let pass for a reason, and a verdict never has a worse finding than
the rules gave it. A finding with a changed severity states the rule's own.

A rule that is `off` still judges: its findings are accepted, as by a waiver, and are shown so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from buildmatrix.errors import Problem, SpecError
from buildmatrix.rules.model import SEVERITY_RANK, Acceptance, Finding, Severity
from buildmatrix.rules.registry import BY_CODE, rule_of
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.model import Policy, RuleSeverity

#: The least severity of findings that make a run fail.
FailOn = Literal["error", "warning", "note", "never"]

#: The rule with a severity of its own, in `[policy.vulnerabilities]`.
_VULNERABILITY = "BM801"


def check_severities(policy: Policy) -> None:
    """Raise `SpecError` for rules that do not exist, and for what a rule may not be made."""
    problems = [
        Problem(message, entry.position.file, entry.position.line, entry.position.column, hint)
        for entry in policy.severities
        for message, hint in _mistakes(entry)
    ]
    if problems:
        raise SpecError(problems)


def apply_policy(findings: Iterable[Finding], policy: Policy) -> tuple[Finding, ...]:
    """The findings with the severities of the policy; what is off is accepted."""
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
    severity = _choose_severity(judged, rule_of(finding.rule).severity, entry.severity)
    return replace(finding, severity=severity, judged=judged if severity != judged else None)


def _choose_severity(judged: Severity, usual: Severity, policy: Severity) -> Severity:
    """Return the severity of a finding that its rule `judged`; `usual` is the rule's own."""
    if SEVERITY_RANK[judged] >= SEVERITY_RANK[usual]:
        return policy
    return min(judged, policy, key=lambda severity: SEVERITY_RANK[severity])


def _mistakes(entry: RuleSeverity) -> Iterator[tuple[str, str]]:
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
