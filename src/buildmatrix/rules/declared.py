"""Helpers of the rules about distributions."""

from __future__ import annotations

from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.phrases import size
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import Present, Subject


def finding_about(
    code: str,
    subject: Subject,
    present: Present,
    message: str,
    *,
    severity: Severity | None = None,
    vendor: str | None = None,
    evidence: tuple[Evidence, ...] = (),
    fix: Fix | None = None,
) -> Finding:
    """A finding of rule `code` about a distribution, with the chain down to it."""
    return finding(
        code,
        subject,
        message,
        severity=severity,
        vendor=vendor,
        owner=present.owner,
        evidence=evidence,
        chain=subject.chain_to(present.name) or (str(present),),
        fix=fix,
    )


def declaration(present: Present, match: DistributionMatch, vendor: str) -> tuple[Evidence, ...]:
    """The evidence that a name or a version is."""
    return (
        Evidence(
            kind="declared",
            vendor=vendor,
            backend=match.backend,
            path=present.path,
            detail=f"{present.name} {present.version}",
            role="package",
            confidence=match.confidence,
            weight=match.weight,
            toolkit=match.toolkit,
            size=present.size or 0,
            distribution=present.owner,
        ),
    )


def sized(present: Present) -> str:
    """`torch 2.9.0 (901.4 MB)`; the bytes where they are known."""
    return f"{present} ({size(present.size)})" if present.size else str(present)


def is_by_local_version(match: DistributionMatch) -> bool:
    """Return True if a distribution was matched by its local version, not by its name."""
    return "+" in match.entry


def from_own_index(present: Present, subject: Subject) -> bool:
    """Return True if a distribution comes from an index that the specification names."""
    urls = {url.rstrip("/") for url in subject.target.index.values()}
    return present.index is not None and present.index.rstrip("/") in urls
