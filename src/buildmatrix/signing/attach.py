"""Claims of a build about an image, signed and attached to it in its registry.

cosign and admission controllers find them there, in two places with the same envelope. Since
cosign 3, a bundle is in a manifest that refers to the image (OCI distribution specification 1.1,
"referrers"). cosign 2, and controllers without bundle support, read the layers of the manifest
under the tag `sha256-<digest>.att`. The formats are those of cosign 3.1.1
(`WriteAttestationNewBundleFormat` and `WriteAttestations` in its `pkg/oci/remote/write.go`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from buildmatrix.images.oci.documents import EMPTY, MANIFEST, Descriptor, Manifest, encode
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.matrix.model import Spec, Target
from buildmatrix.net.registry.client import Registry
from buildmatrix.net.registry.reference import Reference
from buildmatrix.reports.run.model import Report, whole
from buildmatrix.signing import documents, verdict
from buildmatrix.signing.attached import CREATED, TARGET, add_to_tag, push_data
from buildmatrix.signing.documents import Envelope
from buildmatrix.signing.keyless import KeylessSigner
from buildmatrix.signing.keys import PrivateKey

#: in-toto's type for bills of materials in CycloneDX; cosign calls it `cyclonedx`.
CYCLONEDX = "https://cyclonedx.org/bom"
#: A private key, or the identity of a CI job.
Signer: TypeAlias = PrivateKey | KeylessSigner


@dataclass(frozen=True, slots=True)
class Claim:
    """A predicate about an image."""

    #: ID of its target.
    target: str
    predicate_type: str
    #: JSON.
    predicate: bytes


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
    # The library is imported only where a bill is written.
    from buildmatrix.reports.run import cyclonedx

    own = verdict.make_verdict(spec, target, lock, report, now, fail_on=fail_on, strict=strict)
    held = replace(whole(verdict.select_target(report, target.id)), subject=str(image))
    return (
        Claim(target.id, verdict.PREDICATE_TYPE, verdict.encode(own)),
        Claim(target.id, CYCLONEDX, cyclonedx.render(held).encode("utf-8", "backslashreplace")),
    )


def attach(
    registry: Registry, image: Reference, claim: Claim, signer: Signer, now: datetime
) -> Descriptor:
    """Sign a claim about `image`, which has a digest, and attach it; return the referrer.

    Raises `UndecidedError` if the registry or a signing service fails.
    """
    payload = documents.encode_statement(
        image.name, image.digest, claim.predicate_type, claim.predicate
    )
    if isinstance(signer, KeylessSigner):
        signed = signer.sign(payload)
    else:
        signed = documents.encode_bundle(Envelope.sign(payload, signer), signer.public.hint)
    subject = registry.resolve(image)
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=documents.MEDIA_TYPE,
        config=push_data(registry, image, b"{}", EMPTY),
        layers=(push_data(registry, image, signed, documents.MEDIA_TYPE),),
        subject=msgspec.structs.replace(subject, annotations={}, platform=None),
        annotations={
            "dev.sigstore.bundle.content": "dsse-envelope",
            documents.PREDICATE_TYPE: claim.predicate_type,
            CREATED: now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            TARGET: claim.target,
        },
    )
    attached = registry.push_referrer(image, encode(manifest))
    add_to_tag(registry, image, attached)
    return attached
