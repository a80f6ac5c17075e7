"""The policy of a verdict, as it is signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from buildmatrix.spec.model import Lists, Policy, PolicySeverity, Severity, Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPolicy:
    """`[policy]` for the backend of one target."""

    #: Code of a rule → severity of its findings.
    severities: Mapping[str, PolicySeverity] = field(default_factory=dict)
    #: Required gates.
    gates: tuple[str, ...] = ()
    #: `digest`, `tag` or `none`; empty for the rule's default.
    pinned_bases: str = ""
    #: In bytes.
    bloat_threshold: int = 0
    #: Severity of known vulnerabilities.
    vulnerabilities: Severity = "error"
    #: Patterns of sonames that need no provider, and of forbidden variables.
    allow_unresolved: tuple[str, ...] = ()
    forbid_env: tuple[str, ...] = ()
    #: Name of a budget (`max-size`) → bytes, or layers.
    budgets: Mapping[str, int] = field(default_factory=dict)
    #: `distributions`, `libraries` and `licenses` → entries as written; kinds without entries are
    #: omitted.
    allow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forbid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def effective_policy(policy: Policy, target: Target) -> JudgedPolicy:
    """Return the policy that applies to a target."""
    backend = target.backend
    entries = (policy.severity(rule, backend) for rule in {i.rule for i in policy.severities})
    return JudgedPolicy(
        severities={
            entry.rule: entry.severity
            for entry in sorted(filter(None, entries), key=lambda entry: entry.rule)
        },
        gates=policy.required_gates(backend),
        pinned_bases=policy.pinned_bases or "",
        bloat_threshold=policy.bloat_threshold,
        vulnerabilities=policy.vulnerabilities.severity,
        allow_unresolved=_common_and_own(policy.allow_unresolved, backend),
        forbid_env=_common_and_own(policy.forbid_env, backend),
        budgets=_budgets(policy, target),
        allow=_list_entries(policy.allow, backend),
        forbid=_list_entries(policy.forbid, backend),
    )


def _budgets(policy: Policy, target: Target) -> dict[str, int]:
    budgets = {
        "max-size": policy.max_size,
        "max-download": policy.max_download,
        "max-foreign": policy.max_foreign,
        "max-layers": policy.max_layers,
    }
    limits = {key: policy.budget(budget, target) for key, budget in budgets.items()}
    return {key: limit for key, limit in limits.items() if limit is not None}


def _list_entries(lists: Lists, backend: str) -> dict[str, tuple[str, ...]]:
    kinds = {
        "distributions": lists.distributions,
        "libraries": lists.libraries,
        "licenses": lists.licenses,
    }
    held = {
        kind: tuple(entry.text for entry in _common_and_own(entries, backend))
        for kind, entries in kinds.items()
    }
    return {kind: texts for kind, texts in held.items() if texts}


def _common_and_own(texts: Mapping[str, tuple[T, ...]], backend: str) -> tuple[T, ...]:
    return (*texts.get("*", ()), *texts.get(backend, ()))
