"""The verdict of a target, as it is signed: the predicate of our own statements.

`docs/attestation.md` is its description, and `buildmatrix schema verdict` its JSON schema. Its type
keeps its meaning; what changes the meaning of a field gets a new number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from buildmatrix.attestation.policy import JudgedPolicy, in_force
from buildmatrix.reports import json_form
from buildmatrix.reports.json_form import Json
from buildmatrix.reports.run.model import FailOn, Report, ReportTool
from buildmatrix.reports.run.shown import whole
from buildmatrix.rules.model import (
    GATES,
    IF_KNOWN,
    Acceptance,
    Finding,
    Fingerprint,
    Gate,
    GateState,
    Severity,
)
from buildmatrix.rules.registry import RULES
from buildmatrix.rules.rungs import Rung
from buildmatrix.spec.model import Policy, Spec, Target
from buildmatrix.store.cache import code

#: The type of the predicate: an URI that names no place, since there is no place that it must have.
PREDICATE_TYPE = "urn:buildmatrix:verdict:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """What an image was judged as: one point of the matrix."""

    id: str
    backend: str
    runtime: str
    python: str
    variant: str
    platform: str
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBy:
    """The rules that a target was judged by."""

    #: Codes of all rules.
    codes: tuple[str, ...]
    #: Names the sources of the rules and the catalogue that come with the tool.
    sources: str
    #: The specification's own data files of the catalogue: path → SHA-256 in hex.
    catalogue_files: Mapping[str, str] = field(default_factory=dict)
    fail_on: FailOn
    strict: bool
    #: None in verdicts of versions that signed none.
    policy: JudgedPolicy | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFinding:
    """A finding, without what only a person needs; its report has the rest."""

    rule: str
    severity: Severity
    #: What its rule says, where the policy makes something else of it.
    judged: Severity | None = field(default=None, metadata=IF_KNOWN)
    fingerprint: Fingerprint
    distribution: str | None = None
    version: str | None = None
    #: None for a finding that is open.
    accepted: Acceptance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCounts:
    """How many findings there are; those that were accepted count apart."""

    error: int = 0
    warning: int = 0
    note: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """What the gates of one target came to, and what they judged by."""

    schema: Literal["buildmatrix/verdict/1"] = "buildmatrix/verdict/1"
    #: With the date of the catalogue.
    tool: ReportTool
    #: When, in UTC: `2026-11-22T15:04:26Z`.
    judged: str
    target: JudgedTarget
    #: Digest of the lock's bytes, `sha256:...`.
    lock: str
    #: Base images: reference → digest, where the builder said so.
    bases: Mapping[str, str] = field(default_factory=dict)
    gates: Mapping[Gate, GateState]
    #: The gates that the target has, and those that the policy requires: without smoke commands
    #: there is no gate `smoke`.
    required: tuple[Gate, ...]
    #: Smoke commands that could not run where it was built: `warmup (batch)`.
    smoke_not_run: tuple[str, ...] = ()
    #: Rungs of `preflight` that the image passed there; None where it did not climb.
    rungs_passed: tuple[Rung, ...] | None = field(default=None, metadata=IF_KNOWN)
    rules: JudgedBy
    counts: FindingCounts = field(default_factory=FindingCounts)
    findings: tuple[JudgedFinding, ...] = ()


def of_target(report: Report, id: str) -> Report:
    """What a report says of one of its targets; findings of the run as a whole belong to none."""
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


def verdict(
    spec: Spec,
    target: Target,
    lock: str,
    report: Report,
    judged: datetime,
    *,
    fail_on: FailOn,
    strict: bool,
) -> TargetVerdict:
    """The verdict of `target`, whose lock has the digest `lock`, out of a run's report.

    Secrets of addresses are taken out of every text.
    """
    report = whole(of_target(report, target.id))
    (result,) = report.targets
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
        required=_required(target, spec.policy),
        smoke_not_run=result.smoke_not_run,
        rungs_passed=None
        if result.rungs is None
        # What was accepted is said in the report; a signature stands for the rest.
        else tuple(rung.rung for rung in result.rungs if rung.state == "passed" and not rung.why),
        rules=JudgedBy(
            codes=tuple(rule.code for rule in RULES),
            sources=code("rules", "catalogue"),
            catalogue_files={
                name: hashlib.sha256(path.read_bytes()).hexdigest()
                for name, path in zip(spec.catalogue, spec.catalogue_files, strict=True)
            },
            fail_on=fail_on,
            strict=strict,
            policy=in_force(spec.policy, target),
        ),
        counts=_counts(report.findings),
        findings=tuple(map(_judged, report.findings)),
    )


def _required(target: Target, policy: Policy) -> tuple[Gate, ...]:
    required = policy.required_gates(target.backend)
    return tuple(gate for gate in GATES if gate != "smoke" or target.smoke or gate in required)


def _counts(findings: Sequence[Finding]) -> FindingCounts:
    counts = Counter(finding.severity for finding in findings if finding.waived is None)
    return FindingCounts(
        error=counts["error"],
        warning=counts["warning"],
        note=counts["note"],
        accepted=len(findings) - counts.total(),
    )


def _judged(finding: Finding) -> JudgedFinding:
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
    """The predicate as JSON; the same verdict gives the same bytes."""
    return json_form.render(held).encode("utf-8", "backslashreplace")


def parse(data: bytes) -> TargetVerdict:
    """A predicate of this type. Raises `ValueError` for what is none."""
    return json_form.parse(data, TargetVerdict)


def schema() -> dict[str, Json]:
    """The JSON schema of the predicate."""
    return json_form.schema(TargetVerdict, "The verdict of a target, as buildmatrix attests it")
