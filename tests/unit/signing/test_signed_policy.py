"""The policy that was in force is signed, and `verify` shows what it changed."""

from __future__ import annotations

from pathlib import Path

from rulecases import target
from test_verdict import CPU, GATES, NOON, spec

from buildmatrix.base.data import replace
from buildmatrix.judge.acceptance import apply_policy
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.matrix.model import Listed, Lists, Policy, Position, RuleSeverity
from buildmatrix.reports.run import assemble
from buildmatrix.reports.verify import Proof, Verification, render
from buildmatrix.signing.verdict import encode, make_verdict, parse

AT = Position("buildmatrix.toml", 9)
POLICY = Policy(
    severities=(
        RuleSeverity("BM401", "*", "warning", AT),
        RuleSeverity("BM605", "cpu", "off", AT),
        RuleSeverity("BM402", "cuda", "error", AT),
    ),
    gates={"*": ("lock", "smoke")},
    pinned_bases="tag",
    forbid_env={"*": ("A_*",), "cpu": ("B_*",)},
    forbid=Lists(licenses={"*": (Listed("AGPL-*", AT),), "cuda": (Listed("MIT", AT),)}),
)
FOUND = Finding(
    rule="BM401",
    name="foreign-device-code",
    severity="error",
    target=CPU.id,
    backend="cpu",
    vendor="nvidia",
    message="m",
    fingerprint="0" * 32,
)


def held(tmp_path: Path):
    (tmp_path / "mine.toml").write_text("")
    report = assemble(
        "s",
        "2026-11-20",
        targets=[TargetResult(id=CPU.id, backend="cpu", gates=GATES)],
        findings=apply_policy([FOUND], POLICY),
    )
    held = replace(spec(tmp_path, CPU), policy=POLICY)
    return make_verdict(held, CPU, "sha256:0", report, NOON, fail_on="error", strict=False)


def test_the_verdict_has_the_policy_of_its_backend(tmp_path: Path) -> None:
    policy = held(tmp_path).rules.policy
    assert policy is not None
    assert policy.severities == {"BM401": "warning", "BM605": "off"}
    assert (policy.gates, policy.pinned_bases) == (("lock", "smoke"), "tag")
    assert policy.forbid_env == ("A_*", "B_*")
    assert (policy.forbid, policy.allow) == ({"licenses": ("AGPL-*",)}, {})
    assert policy.bloat_threshold == 5_000_000


def test_a_finding_says_what_its_rule_said(tmp_path: Path) -> None:
    (finding,) = held(tmp_path).findings
    assert (finding.severity, finding.judged) == ("warning", "error")
    assert held(tmp_path).counts.error == 0


def test_a_required_gate_is_required_without_smoke_commands(tmp_path: Path) -> None:
    assert target("cpu").smoke == ()
    assert held(tmp_path).required == ("lock", "build", "scan", "smoke")


def test_it_is_read_back_as_it_was_and_older_ones_have_none(tmp_path: Path) -> None:
    made = held(tmp_path)
    assert parse(encode(made)) == made
    before = replace(made, rules=replace(made.rules, policy=None))
    assert parse(encode(before)).rules.policy is None


def test_verify_prints_what_passed_and_every_rule_that_counts_otherwise() -> None:
    proof = Proof(
        attestation="sha256:0",
        key="k",
        judged="2026-11-22T12:00:01Z",
        tool="1",
        catalogue="2026-11-20",
        target=CPU.id,
        backend="cpu",
        runtime="any",
        platform="linux/amd64",
        lock="sha256:0",
        gates=GATES,  # type: ignore[arg-type]
        severities={"BM401": "warning", "BM605": "off"},
    )
    shown = Verification(
        source="s", backend="cpu", repository="r", digest="d", verified=True, proof=proof
    )
    text = render(shown, width=200, color=False)
    assert (
        "by the policy BM401 counts as warning (its rule: error), BM605 counts as off "
        "(its rule: warning)" in text
    )
    assert "policy" not in render(
        replace(shown, proof=replace(proof, severities={})), width=200, color=False
    )
    assert "of preflight" not in text
    climbed = replace(shown, proof=replace(proof, rungs_passed=("import", "device")))
    assert "passed where it was built: import, device of preflight" in render(
        climbed, width=200, color=False
    )
