"""`[policy.severity]`: what a policy makes of findings, and what it may not."""

from __future__ import annotations

import pytest
from rulecases import elf, file, image, of_image, only, sass, target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.judge.acceptance import apply_policy, check_severities, fails, leaves_open
from buildmatrix.judge.model import Finding, Severity
from buildmatrix.judge.registry import BY_CODE, RULES
from buildmatrix.matrix.model import Policy, PolicySeverity, Position, RuleSeverity

AT = Position("buildmatrix.toml", 12, 9)


def policy(rule: str, severity: PolicySeverity, backend: str = "*") -> Policy:
    return Policy(severities=(RuleSeverity(rule, backend, severity, AT),))


def found(rule: str, severity: Severity, backend: str = "cpu") -> Finding:
    return Finding(
        rule=rule,
        name=BY_CODE[rule].name,
        severity=severity,
        target=f"{backend}-py311",
        backend=backend,
        vendor=None,
        message="m",
    )


@pytest.mark.parametrize(
    ("rule", "judged", "said", "counted"),
    [
        ("BM304", "warning", "error", "error"),  # as usual: raised
        ("BM304", "note", "error", "note"),  # milder than usual: stays
        ("BM304", "note", "warning", "note"),
        ("BM401", "error", "warning", "warning"),
        ("BM401", "warning", "warning", "warning"),
        ("BM401", "warning", "note", "note"),
        ("BM401", "note", "error", "note"),
        ("BM605", "error", "note", "note"),  # worse than usual: a cap
        ("BM605", "error", "warning", "warning"),
        ("BM605", "note", "warning", "note"),
    ],
)
def test_a_policy_moves_what_is_as_bad_as_usual_and_caps_the_rest(
    rule: str, judged: Severity, said: PolicySeverity, counted: Severity
) -> None:
    (finding,) = apply_policy([found(rule, judged)], policy(rule, said))
    assert finding.severity == counted
    assert finding.judged == (judged if judged != counted else None)
    assert apply_policy([finding], policy(rule, said)) == (finding,), "twice is as once"


def test_a_backend_by_its_name_goes_before_all_backends() -> None:
    both = Policy(
        severities=(
            RuleSeverity("BM304", "*", "note", AT),
            RuleSeverity("BM304", "cuda", "error", AT),
        )
    )
    cuda, rocm = apply_policy(
        [found("BM304", "warning", "cuda"), found("BM304", "warning", "rocm")], both
    )
    assert (cuda.severity, rocm.severity) == ("error", "note")
    (other,) = apply_policy([found("BM304", "warning")], policy("BM304", "error", "cuda"))
    assert other.severity == "warning"


def test_what_is_off_is_shown_as_accepted_with_the_line() -> None:
    (finding,) = apply_policy([found("BM605", "error")], policy("BM605", "off"))
    assert finding.severity == "error"
    assert finding.waived == "BM605 is off under [policy.severity] (buildmatrix.toml:12)"
    assert finding.acceptance is not None and finding.acceptance.by == "policy"
    assert not fails(finding, "note")


def test_a_verdict_that_is_bloat_keeps_a_finding_whose_rule_says_error() -> None:
    tree = image(file("xgb/a.so", elf(device_code=sass("sm_80")), "xgb 1", size=90_000_000))
    one = only(apply_policy(of_image(target("cpu"), tree), policy("BM401", "note")), "BM401")
    assert (one.severity, one.judged) == ("note", "error")
    assert one.by_policy == "by the policy; its rule says error"
    assert not fails(one)


def test_no_policy_changes_nothing() -> None:
    findings = (found("BM401", "error"), found("BM501", "note"))
    assert apply_policy(findings, Policy()) == findings


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.unknown], ids=lambda r: r.code)
@pytest.mark.parametrize("severity", ["note", "off"])
def test_what_is_not_known_cannot_be_made_to_look_clean(rule, severity: PolicySeverity) -> None:
    with pytest.raises(SpecError, match=f"{rule.code} .* says what is not known"):
        check_severities(policy(rule.code, severity))


def test_what_is_not_known_may_count_as_an_error_and_stays_undecided() -> None:
    said = policy("BM902", "error")
    check_severities(said)
    (finding,) = apply_policy([found("BM902", "warning")], said)
    assert fails(finding) and leaves_open(finding)


@pytest.mark.parametrize(
    ("rule", "severity", "message", "hint"),
    [
        ("BM999", "note", "there is no rule BM999", "`buildmatrix rules`"),
        ("BM411", "off", "there is no rule BM411", "did you mean `BM401`"),
        ("BM801", "note", r"under \[policy.vulnerabilities\]", 'write `severity = "note"`'),
        ("BM801", "off", r"under \[policy.vulnerabilities\]", "`ignore`"),
        ("BM501", "warning", "cannot be more than `note`", "forbid-libraries"),
    ],
)
def test_what_a_policy_may_not_say(
    rule: str, severity: PolicySeverity, message: str, hint: str
) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        check_severities(policy(rule, severity))
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (12, 9)
    assert problem.hint is not None and hint in problem.hint


def test_a_waiver_keeps_its_reason_where_the_rule_is_off() -> None:
    waived = replace(found("BM605", "error"), waived="the team knows")
    (finding,) = apply_policy([waived], policy("BM605", "off"))
    assert finding.waived == "the team knows"
