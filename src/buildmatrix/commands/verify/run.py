"""`verify`: from the name of an image to one answer, without its layers."""

from __future__ import annotations

from buildmatrix.attestation.attached import AttestationReader
from buildmatrix.attestation.keyless import Identity
from buildmatrix.attestation.keys import PublicKey
from buildmatrix.attestation.verdict import PREDICATE_TYPE
from buildmatrix.commands.verify.judgement import (
    AdmissionDemands,
    SignedVerdict,
    VerifiedEnvelopes,
    find_unmet_demands,
    select_newest,
    verify_envelopes,
)
from buildmatrix.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError
from buildmatrix.oci.choosing import choose, images_in
from buildmatrix.oci.documents import INDEXES, index_of
from buildmatrix.phrases import listing
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.verify import Proof, Refusal, Verification
from buildmatrix.text import printable


def verify(
    registry: Registry, source: str, reference: Reference, demands: AdmissionDemands
) -> Verification:
    """Check that the image of a name has a verdict that meets the demands.

    Of several images under one name, that of the platform counts. Raises `UndecidedError` if the
    registry cannot be reached, or has no image of that name or platform.
    """
    top = registry.resolve(reference)
    image = reference.at(top.digest)
    envelopes, kinds = VerifiedEnvelopes(), ""
    if top.media_type in INDEXES:
        index = index_of(registry.manifest(image).data, str(image))
        if demands.platform is not None:
            entry = choose(index.manifests, demands.platform, str(image))
            if entry is None:
                raise UndecidedError(f"{image} has no image for {demands.platform}")
            image = reference.at(entry.digest)
        elif len(images := images_in(index.manifests)) > 1:
            kinds = listing(printable(str(item.platform)) for item in images)
    envelopes = _verify_attached(registry, image, demands)
    proof, refusals = _judge(envelopes, demands)
    if kinds:
        # Even with a signed verdict about the index: the others were never scanned, and each engine
        # takes the image of its own platform.
        refusals = [
            Refusal(
                "multi-platform",
                f"the name is that of several images ({kinds}), and a verdict is about one: name "
                "one with --platform, or by its digest",
            ),
            *(refusals if envelopes.signed else envelopes.refusals),
        ]
    return Verification(
        source=source,
        backend=demands.backend,
        repository=image.name,
        digest=image.digest,
        verified=not refusals,
        refusals=tuple(dict.fromkeys(refusals)),
        proof=proof,
        notes=()
        if not envelopes.signed
        else tuple(dict.fromkeys(item.message for item in envelopes.refusals)),
    )


def exit_code(verification: Verification) -> int:
    """Return 0 if the image is verified, else 1."""
    return EXIT_OK if verification.verified else EXIT_FINDINGS


def _verify_attached(
    registry: Registry, image: Reference, demands: AdmissionDemands
) -> VerifiedEnvelopes:
    """Verify what is attached; read the tag of cosign 2 if no bundle has a verdict."""
    reader = AttestationReader(registry, image, PREDICATE_TYPE)
    referrers = list(reader.referrers())
    first = verify_envelopes(referrers, image.digest, demands)
    if first.signed:
        return first
    # One refusal for each envelope is enough.
    seen = [item.envelope for item in referrers if item.envelope is not None]
    others = [item for item in reader.tagged() if item.envelope not in seen]
    second = verify_envelopes(others, image.digest, demands)
    return VerifiedEnvelopes(second.signed, first.refusals + second.refusals)


def _judge(
    envelopes: VerifiedEnvelopes, demands: AdmissionDemands
) -> tuple[Proof | None, list[Refusal]]:
    if not envelopes.signed:
        nothing = Refusal(
            "no-attestation",
            "the image has no verdict of buildmatrix with it; `build --push --attest` attaches it",
        )
        return None, envelopes.refusals or [nothing]
    chosen = select_newest(envelopes.signed, demands.backend)
    if isinstance(chosen, Refusal):
        return None, [chosen]
    return _make_proof(chosen), list(find_unmet_demands(chosen.verdict, demands))


def _make_proof(signed: SignedVerdict) -> Proof:
    held = signed.verdict
    return Proof(
        attestation=signed.place,
        key=signed.signer.hint if isinstance(signed.signer, PublicKey) else None,
        identity=signed.signer.subject if isinstance(signed.signer, Identity) else None,
        issuer=signed.signer.issuer if isinstance(signed.signer, Identity) else None,
        judged=held.judged,
        tool=held.tool.version,
        catalogue=held.tool.catalogue,
        target=held.target.id,
        backend=held.target.backend,
        runtime=held.target.runtime,
        platform=held.target.platform,
        lock=held.lock,
        gates=held.gates,
        smoke_not_run=held.smoke_not_run,
        rungs_passed=held.rungs_passed,
        findings={
            "error": held.counts.error,
            "warning": held.counts.warning,
            "note": held.counts.note,
        },
        accepted=tuple(
            dict.fromkeys(item.accepted for item in held.findings if item.accepted is not None)
        ),
        severities=held.rules.policy.severities if held.rules.policy is not None else {},
    )
