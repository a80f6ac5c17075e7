"""The signed verdict of a target: predicate and policy of our own statements.

Described in `docs/attestation.md`, with a JSON schema from `buildmatrix schema verdict`. The type
never changes its meaning; a field with a new meaning needs a new type number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from buildmatrix.images.store.cache import source_digest
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.model import (
    GATES,
    IF_KNOWN,
    Acceptance,
    Finding,
    Fingerprint,
    Gate,
    GateState,
    Severity,
)
from buildmatrix.judge.registry import RULES
from buildmatrix.matrix.model import Lists, Policy, PolicySeverity, Rung, Spec, Target
from buildmatrix.reports import json_form
from buildmatrix.reports.json_form import Json
from buildmatrix.reports.run import Report, ReportTool, whole

# Policy


T = TypeVar("T")


class JudgedPolicy(Struct, frozen=True, kw_only=True):
    """`[policy]` for the backend of one target."""

    #: Code of a rule → severity of its findings.
    severities: Mapping[str, PolicySeverity] = msgspec.field(default_factory=dict)
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
    budgets: Mapping[str, int] = msgspec.field(default_factory=dict)
    #: `distributions`, `libraries` and `licenses` → entries as written; kinds without entries are
    #: omitted.
    allow: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    forbid: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


def effective_policy(policy: Policy, target: Target) -> JudgedPolicy:
    """Return the policy that applies to a target."""
    backend = target.backend
    budgets = {
        "max-size": policy.max_size,
        "max-download": policy.max_download,
        "max-foreign": policy.max_foreign,
        "max-layers": policy.max_layers,
    }
    limits = {key: policy.budget(budget, target) for key, budget in budgets.items()}
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
        budgets={key: limit for key, limit in limits.items() if limit is not None},
        allow=_list_entries(policy.allow, backend),
        forbid=_list_entries(policy.forbid, backend),
    )


def _list_entries(lists: Lists, backend: str) -> dict[str, tuple[str, ...]]:
    kinds = {
        "distributions": lists.distributions,
        "libraries": lists.libraries,
        "licenses": lists.licenses,
    }
    return {
        kind: tuple(entry.text for entry in held)
        for kind, entries in kinds.items()
        if (held := _common_and_own(entries, backend))
    }


def _common_and_own(texts: Mapping[str, tuple[T, ...]], backend: str) -> tuple[T, ...]:
    return (*texts.get("*", ()), *texts.get(backend, ()))


# Predicate


#: Type of the predicate: a URN, as it has no address.
PREDICATE_TYPE = "urn:buildmatrix:verdict:1"


class JudgedTarget(Struct, frozen=True, kw_only=True):
    """The judged point of the matrix."""

    id: str
    backend: str
    runtime: str
    python: str
    variant: str
    platform: str
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBy:
    """Rules and settings of a verdict."""

    #: Codes of all rules.
    codes: tuple[str, ...]
    #: Digest of the sources of the rules and the built-in catalogue.
    sources: str
    #: The specification's own catalogue files: path → SHA-256 in hex.
    catalogue_files: Mapping[str, str] = field(default_factory=dict)
    fail_on: FailOn
    strict: bool
    #: None in verdicts of versions that did not sign it.
    policy: JudgedPolicy | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFinding:
    """A finding in short; its report has the details."""

    rule: str
    severity: Severity
    #: Severity of the rule, if the policy changes it.
    judged: Severity | None = field(default=None, metadata=IF_KNOWN)
    fingerprint: Fingerprint
    distribution: str | None = None
    version: str | None = None
    #: None for an open finding.
    accepted: Acceptance | None = None


class FindingCounts(Struct, frozen=True, kw_only=True):
    """Numbers of findings; accepted ones are counted separately."""

    error: int = 0
    warning: int = 0
    note: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """Results of the gates of one target, and the rules they applied."""

    schema: Literal["buildmatrix/verdict/1"] = "buildmatrix/verdict/1"
    #: Includes the date of the catalogue.
    tool: ReportTool
    #: UTC time, as `2026-11-22T15:04:26Z`.
    judged: str
    target: JudgedTarget
    #: Digest of the lock's bytes, `sha256:...`.
    lock: str
    #: Base images: reference → digest, if the builder reported it.
    bases: Mapping[str, str] = field(default_factory=dict)
    gates: Mapping[Gate, GateState]
    #: Gates of the target, and those that the policy requires: without smoke commands there is no
    #: gate `smoke`.
    required: tuple[Gate, ...]
    #: Smoke commands that could not run on the build machine: `warmup (batch)`.
    smoke_not_run: tuple[str, ...] = ()
    #: Rungs of `preflight` that the image passed there; None if it was not run.
    rungs_passed: tuple[Rung, ...] | None = field(default=None, metadata=IF_KNOWN)
    rules: JudgedBy
    counts: FindingCounts = field(default_factory=FindingCounts)
    findings: tuple[JudgedFinding, ...] = ()


def select_target(report: Report, id: str) -> Report:
    """Return a report on one of its targets, without findings about the whole run."""
    return Report(
        tool=report.tool,
        subject=report.subject,
        targets=tuple(target for target in report.targets if target.id == id),
        distributions=tuple(
            item
            for item in report.distributions
            for target in report.targets
            if target.id == id and item.is_about(id, target.backend)
        ),
        findings=tuple(finding for finding in report.findings if finding.is_about(id)),
    )


def make_verdict(
    spec: Spec,
    target: Target,
    lock: str,
    report: Report,
    judged: datetime,
    *,
    fail_on: FailOn,
    strict: bool,
) -> TargetVerdict:
    """Return the verdict of `target`, whose lock has the digest `lock`, from a run's report.

    Secrets in addresses are removed from every text. Raises OSError if a data file of the
    specification cannot be read again.
    """
    report = whole(select_target(report, target.id))
    (result,) = report.targets
    required = spec.policy.required_gates(target.backend)
    counts = Counter(finding.severity for finding in report.findings if finding.waived is None)
    return TargetVerdict(
        tool=report.tool,
        judged=judged.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        target=JudgedTarget(
            id=target.id,
            backend=target.backend,
            runtime=target.runtime,
            python=target.python,
            variant=target.variant,
            platform=target.platform,
            architectures=target.archs,
        ),
        lock=lock,
        bases=result.bases,
        gates=result.gates,
        required=tuple(
            gate for gate in GATES if gate != "smoke" or target.smoke or gate in required
        ),
        smoke_not_run=result.smoke_not_run,
        rungs_passed=None
        if result.rungs is None
        # Accepted rungs are in the report; a signature covers the others.
        else tuple(rung.rung for rung in result.rungs if rung.state == "passed" and not rung.why),
        rules=JudgedBy(
            codes=tuple(rule.code for rule in RULES),
            sources=source_digest("judge", "catalogue"),
            catalogue_files={
                name: hashlib.sha256(path.read_bytes()).hexdigest()
                for name, path in zip(spec.catalogue, spec.catalogue_files, strict=True)
            },
            fail_on=fail_on,
            strict=strict,
            policy=effective_policy(spec.policy, target),
        ),
        counts=FindingCounts(
            error=counts["error"],
            warning=counts["warning"],
            note=counts["note"],
            accepted=len(report.findings) - counts.total(),
        ),
        findings=tuple(map(_summarize_finding, report.findings)),
    )


def _summarize_finding(finding: Finding) -> JudgedFinding:
    return JudgedFinding(
        rule=finding.rule,
        severity=finding.severity,
        judged=finding.judged,
        fingerprint=finding.fingerprint,
        distribution=finding.distribution,
        version=finding.version,
        accepted=finding.acceptance,
    )


def encode(held: TargetVerdict) -> bytes:
    """Encode the predicate as JSON; equal verdicts have equal bytes."""
    return json_form.render(held).encode("utf-8", "backslashreplace")


def parse(data: bytes) -> TargetVerdict:
    """Parse a predicate. Raises `ValueError`."""
    return json_form.parse(data, TargetVerdict)


def schema() -> dict[str, Json]:
    """Return the JSON schema of the predicate."""
    return json_form.schema(TargetVerdict, "The verdict of a target, as buildmatrix attests it")
