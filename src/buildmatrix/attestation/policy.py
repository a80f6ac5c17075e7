"""The policy that a verdict was made under, as it is signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from buildmatrix.spec.model import Lists, Policy, PolicySeverity, Severity, Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPolicy:
    """What `[policy]` said for the backend of one target."""

    #: Code of a rule → what its findings count.
    severities: Mapping[str, PolicySeverity] = field(default_factory=dict)
    #: Gates that had to run.
    gates: tuple[str, ...] = ()
    #: `digest`, `tag` or `none`; empty where it was left to the rule.
    pinned_bases: str = ""
    #: Bytes.
    bloat_threshold: int = 0
    #: What a known vulnerability counts.
    vulnerabilities: Severity = "error"
    #: Patterns of sonames that nothing has to provide, and of variables that must not be set.
    allow_unresolved: tuple[str, ...] = ()
    forbid_env: tuple[str, ...] = ()
    #: Key of a budget (`max-size`) → bytes, or layers.
    budgets: Mapping[str, int] = field(default_factory=dict)
    #: `distributions`, `libraries` and `licenses` → entries as written; kinds without a list are
    #: left out.
    allow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forbid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def in_force(policy: Policy, target: Target) -> JudgedPolicy:
    """The policy as it was for a target."""
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
        allow_unresolved=_both(policy.allow_unresolved, backend),
        forbid_env=_both(policy.forbid_env, backend),
        budgets=_budgets(policy, target),
        allow=_entries(policy.allow, backend),
        forbid=_entries(policy.forbid, backend),
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


def _entries(lists: Lists, backend: str) -> dict[str, tuple[str, ...]]:
    kinds = {
        "distributions": lists.distributions,
        "libraries": lists.libraries,
        "licenses": lists.licenses,
    }
    held = {
        kind: tuple(entry.text for entry in _both(entries, backend))
        for kind, entries in kinds.items()
    }
    return {kind: texts for kind, texts in held.items() if texts}


def _both(texts: Mapping[str, tuple[T, ...]], backend: str) -> tuple[T, ...]:
    return (*texts.get("*", ()), *texts.get(backend, ()))
