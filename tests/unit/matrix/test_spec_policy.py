"""`[policy]`: what it becomes, and what contradicts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from buildmatrix.matrix.model import RuleSeverity

if TYPE_CHECKING:
    from conftest import Load, Refuse


def test_severities_keep_their_backends_and_their_places(load: Load, small: str) -> None:
    spec = load(
        small
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
        small.count("\n") + 2,
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
        ('max-size = { "rocm*" = "1GB" }', "no target matches `rocm*`"),
        ('max-size = { "cuda*" = "1GB", "*-server" = "2GB" }', "both give cuda12.8-py312-server"),
        ("max-layers = { cpu = 0 }", "must be a whole number"),
        ('max-download = { gpu = "1GB" }', "there is no backend `gpu` here"),
        ('forbid-licenses = { "*" = ["GPL-9"] }', "`GPL-9` is not on the SPDX license list"),
        ('forbid-licenses = { "*" = ["gpl-3.0-only"] }', "is written `GPL-3.0-only`"),
        ('forbid-licenses = { "*" = ["MIT OR Zlib"] }', "one license, with its exception"),
        ('forbid-distributions = { "*" = ["xgboost<three"] }', "is not a version range"),
        ('forbid-distributions = { "*" = ["xgboost 3"] }', "is not a distribution, with a range"),
        ('forbid-distributions = { gpu = ["xgboost"] }', "there is no backend `gpu` here"),
        ('allow-libraries = { cpu = "libfoo.so" }', "must be a list"),
        ('pinned-bases = "sha256"', "`sha256` is not a way to pin images"),
    ],
)
def test_what_a_policy_cannot_ask_for(refuse: Refuse, text: str, message: str, small: str) -> None:
    (problem,) = refuse(small + f"[policy]\n{text}\n")
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
def test_a_severity_that_is_none(
    refuse: Refuse, text: str, message: str, hint: str, small: str
) -> None:
    (problem,) = refuse(small + f"[policy.severity]\n{text}\n")
    assert message in problem.message
    assert problem.line == small.count("\n") + 2
    assert hint in (problem.hint or "")


@pytest.mark.parametrize(("allowed", "forbidden"), [("cpu", "cpu"), ("cpu", "*"), ("*", "*")])
def test_one_name_cannot_be_allowed_and_forbidden(
    refuse: Refuse,
    allowed: str,
    forbidden: str,
    small: str,
) -> None:
    text = (
        f'[policy]\nforbid-distributions = {{ "{forbidden}" = ["torch"] }}\n'
        f'allow-distributions = {{ "{allowed}" = ["torch"] }}\n'
    )
    (problem,) = refuse(small + text)
    line = small.count("\n")
    assert problem.message == f"`torch` is allowed here, but forbidden in line {line + 2}"
    assert problem.line == line + 3


def test_what_is_allowed_for_all_may_be_forbidden_for_one(load: Load, small: str) -> None:
    spec = load(
        small
        + """\
[policy]
allow-distributions = { "*" = ["torch", "numpy>=2"] }
forbid-distributions = { cpu = ["torch"] }
forbid-licenses = { "*" = ["AGPL-*", "GPL-3.0-only WITH GCC-exception-3.1"] }
"""
    )
    assert [entry.text for entry in spec.policy.allow.distributions["*"]] == ["torch", "numpy>=2"]
    (torch,) = spec.policy.forbid.distributions["cpu"]
    assert (torch.text, torch.position.line) == ("torch", small.count("\n") + 3)


def test_patterns_and_identifiers_have_budgets(load: Load, small: str) -> None:
    spec = load(
        small
        + """\
[policy]
max-size = { "cuda13*" = "8GB", "cuda*12-server" = "9GB", "cuda13.0-py312-server" = "1GB" }
max-layers = { cpu = 20 }
"""
    )
    sizes = [spec.policy.budget(spec.policy.max_size, target) for target in spec.targets]
    assert sizes == [9 * 10**9, 10**9, None, None]
    layers = [spec.policy.budget(spec.policy.max_layers, target) for target in spec.targets]
    assert layers == [None, None, 20, 20]
