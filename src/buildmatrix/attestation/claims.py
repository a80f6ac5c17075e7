"""What a build claims of an image: the verdict of its target, and what it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from buildmatrix.attestation import verdict
from buildmatrix.attestation.attach import Claim
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.run import cyclonedx
from buildmatrix.reports.run.model import FailOn, Report
from buildmatrix.reports.run.shown import whole
from buildmatrix.spec.model import Spec, Target

#: The type that in-toto gives a bill of materials in CycloneDX, and cosign the name `cyclonedx`.
CYCLONEDX = "https://cyclonedx.org/bom"


def claims(
    spec: Spec,
    target: Target,
    lock: str,
    report: Report,
    image: Reference,
    now: datetime,
    *,
    fail_on: FailOn,
    strict: bool,
) -> tuple[Claim, Claim]:
    """The verdict and the bill of materials of one target of a run; `image` has its digest.

    `lock` is the digest of the target's lock. Raises OSError for a data file of the specification
    that cannot be read again.
    """
    statement = verdict.verdict(spec, target, lock, report, now, fail_on=fail_on, strict=strict)
    held = replace(whole(verdict.of_target(report, target.id)), subject=str(image))
    return (
        Claim(target.id, verdict.PREDICATE_TYPE, verdict.encode(statement)),
        Claim(target.id, CYCLONEDX, cyclonedx.render(held).encode("utf-8", "backslashreplace")),
    )
