"""The policy that a verdict was made under, as it is signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.spec.model import Policy, PolicySeverity, Severity, Target


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
    )


def _both(texts: Mapping[str, tuple[str, ...]], backend: str) -> tuple[str, ...]:
    return (*texts.get("*", ()), *texts.get(backend, ()))
