"""Claims of a build about an image: the verdict of its target and its bill of materials."""

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

#: in-toto's type for bills of materials in CycloneDX; cosign calls it `cyclonedx`.
CYCLONEDX = "https://cyclonedx.org/bom"


def make_claims(
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
    """Return the verdict and the bill of materials of one target; `image` has a digest.

    `lock` is the digest of the target's lock. Raises OSError if a data file of the specification
    cannot be read again.
    """
    statement = verdict.make_verdict(
        spec, target, lock, report, now, fail_on=fail_on, strict=strict
    )
    held = replace(whole(verdict.select_target(report, target.id)), subject=str(image))
    return (
        Claim(target.id, verdict.PREDICATE_TYPE, verdict.encode(statement)),
        Claim(target.id, CYCLONEDX, cyclonedx.render(held).encode("utf-8", "backslashreplace")),
    )
