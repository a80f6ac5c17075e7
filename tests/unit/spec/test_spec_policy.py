"""`[policy]`: what it becomes, and what contradicts itself."""

from __future__ import annotations

import pytest
from conftest import SMALL, Load, Refuse

from buildmatrix.spec.model import RuleSeverity


def test_severities_keep_their_backends_and_their_places(load: Load) -> None:
    spec = load(
        SMALL
        + """\
[policy.severity]
BM402 = "error"
BM605 = { cuda = "off", "*" = "note" }
"""
    )
    first, cuda, others = spec.policy.severities
    assert (first.rule, first.backend, first.severity, first.position.line) == (
        "BM402",
        "*",
        "error",
        SMALL.count("\n") + 2,
    )
    assert spec.policy.severity("BM605", "cuda") == cuda
    assert spec.policy.severity("BM605", "cpu") == others
    assert isinstance(others, RuleSeverity) and others.severity == "note"
    assert spec.policy.severity("BM401", "cpu") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('gates = { cpu = ["lint"] }', "`lint` is not a gate"),
        ('gates = { gpu = ["lock"] }', "there is no backend `gpu` here"),
        ('gates = ["lock"]', "must be a table"),
        ('pinned-bases = "sha256"', "`sha256` is not a way to pin images"),
    ],
)
def test_what_a_policy_cannot_ask_for(refuse: Refuse, text: str, message: str) -> None:
    (problem,) = refuse(SMALL + f"[policy]\n{text}\n")
    assert message in problem.message


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('BM402 = "fatal"', "`fatal` is not a severity", ""),
        ("BM402 = 3", "must be a string or a table", ""),
        ('missing-architecture = "note"', "is not the code of a rule", ""),
        ('BM402 = { gpu = "note" }', "there is no backend `gpu` here", "cpu"),
    ],
)
def test_a_severity_that_is_none(refuse: Refuse, text: str, message: str, hint: str) -> None:
    (problem,) = refuse(SMALL + f"[policy.severity]\n{text}\n")
    assert message in problem.message
    assert problem.line == SMALL.count("\n") + 2
    assert hint in (problem.hint or "")
