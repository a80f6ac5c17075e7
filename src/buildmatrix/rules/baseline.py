"""Findings that an earlier report had: they are shown, and fail nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from buildmatrix.rules.model import Acceptance, Finding

#: Reason of findings in the baseline; others have the reason of a waiver.
REASON = "it is in the baseline report"
_ACCEPTANCE = Acceptance(by="baseline", reason=REASON)


def apply(findings: Iterable[Finding], fingerprints: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings, with open ones accepted if their fingerprint is in `fingerprints`.

    Fingerprints hold no target and no version: a baseline outlives upgrades and renamed targets.
    """
    return tuple(
        replace(finding, waived=REASON, acceptance=_ACCEPTANCE)
        if finding.waived is None and finding.fingerprint in fingerprints
        else finding
        for finding in findings
    )


def is_from_baseline(finding: Finding) -> bool:
    """Return True if a finding is accepted only because the baseline has it."""
    return finding.waived == REASON
