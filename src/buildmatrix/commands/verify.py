"""`verify`: check an image's signed verdict in a registry, without reading its layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from msgspec import Struct, field

from buildmatrix.base.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError
from buildmatrix.base.text import count, listing, printable
from buildmatrix.images.documents import INDEXES, Platform, choose, images_in, index_of
from buildmatrix.judge.acceptance import ran_out
from buildmatrix.judge.model import GateState
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.verify import Proof, Refusal, Verification
from buildmatrix.signing import documents, verdict
from buildmatrix.signing.attached import AttachedEnvelope, AttestationReader
from buildmatrix.signing.documents import IN_TOTO, Envelope, PublicKey
from buildmatrix.signing.keyless import CertificateCheck, CertificateError, Identity
from buildmatrix.signing.verdict import PREDICATE_TYPE, TargetVerdict

#: Characters of a foreign name in a sentence.
_SHOWN = 19
_STATES: dict[GateState, str] = {
    "failed": "failed",
    "undecided": "is undecided",
    "not-run": "did not run",
}


class AdmissionDemands(Struct, frozen=True):
    """Requirements for admitting an image."""

    backend: str
    keys: Sequence[PublicKey]
    today: date
    #: Maximum age of the catalogue; None for any age.
    max_age: timedelta | None = None
    #: True if smoke commands must have run.
    smoke: bool = True
    #: Platform that it must run on, which also selects one of several images under a name; None for
    #: any.
    platform: Platform | None = None
    #: Check of keyless signatures; None if no identity may sign.
    certificates: CertificateCheck | None = None


class SignedVerdict(Struct, frozen=True):
    """A verdict with its signer and location."""

    place: str
    signer: PublicKey | Identity
    verdict: TargetVerdict


class VerifiedEnvelopes(Struct):
    """Envelopes after verification: verdicts with a trusted signature, and refusals."""

    signed: list[SignedVerdict] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def verify_envelopes(
    envelopes: Iterable[AttachedEnvelope], digest: str, demands: AdmissionDemands
) -> VerifiedEnvelopes:
    """Return the envelopes with a verdict about `digest`.

    A payload without a trusted signature is never parsed.
    """
    verified = VerifiedEnvelopes()
    for item in envelopes:
        outcome = _verify_envelope(item, digest, demands)
        if isinstance(outcome, Refusal):
            verified.refusals.append(outcome)
        elif outcome is not None:
            verified.signed.append(outcome)
    return verified


def select_newest(signed: Sequence[SignedVerdict], backend: str) -> SignedVerdict | Refusal:
    """Return the last verdict for the backend."""
    fitting = [item for item in signed if item.verdict.target.backend == backend]
    if fitting:
        return max(fitting, key=lambda item: item.verdict.judged)
    backends = sorted({item.verdict.target.backend for item in signed})
    return Refusal(
        "other-backend", f"the image was judged for {listing(backends)}, and not for {backend}"
    )


def find_unmet_demands(held: TargetVerdict, demands: AdmissionDemands) -> Iterator[Refusal]:
    """Yield the demands of today that a verdict does not meet."""
    if demands.platform is not None and not _runs_on(demands.platform, held):
        yield Refusal(
            "other-platform",
            f"the image was judged for {held.target.platform}, and not for {demands.platform}",
        )
    required = [gate for gate in held.required if demands.smoke or gate != "smoke"]
    for gate, state in {gate: held.gates.get(gate, "not-run") for gate in required}.items():
        if state != "passed":
            yield Refusal("gate", f"the gate {gate} {_STATES[state]}")
    for gate, state in held.gates.items():
        if gate not in required and state in ("failed", "undecided"):
            yield Refusal("gate", f"the gate {gate} {_STATES[state]}")
    if held.counts.error:
        yield Refusal(
            "finding",
            f"{count(held.counts.error, 'error')} open: it was built with "
            f"--fail-on {held.rules.fail_on}",
        )
    for finding in held.findings:
        over = ran_out(finding.rule, finding.distribution, finding.accepted, demands.today)
        if over is not None:
            yield Refusal("expired", over)
    if demands.max_age is None:
        return
    try:
        age = demands.today - date.fromisoformat(held.tool.catalogue)
    except ValueError:
        yield Refusal("old-catalogue", "the verdict does not say how old its catalogue is")
        return
    if age > demands.max_age:
        yield Refusal(
            "old-catalogue",
            f"it was judged by the catalogue of {held.tool.catalogue}, {age.days} days old; "
            f"{demands.max_age.days} are allowed: build it again with a newer buildmatrix",
        )


def _verify_envelope(
    item: AttachedEnvelope, digest: str, demands: AdmissionDemands
) -> SignedVerdict | Refusal | None:
    """Return an envelope's verdict about `digest`; None if it has no verdict at all."""
    name = f"the attestation {item.place[:_SHOWN]}"
    envelope = item.envelope
    if item.trouble == "gone":
        return Refusal("stripped", f"{name} is listed, and the registry does not have it")
    if envelope is None:
        return Refusal("unreadable", f"{name} cannot be read: {item.why}")
    if not envelope.signatures:
        return Refusal("stripped", f"{name} has lost its signature")
    signer = _find_signer(item, envelope, name, demands)
    if isinstance(signer, Refusal):
        return signer
    if envelope.payload_type != IN_TOTO:
        return None
    try:
        said = documents.parse_statement(envelope.payload)
        if said.predicate_type != verdict.PREDICATE_TYPE:
            return None
        held = verdict.parse(bytes(said.predicate))
    except ValueError as error:
        return Refusal("unreadable", f"{name} cannot be read: {error}")
    if not said.is_about(digest):
        others = listing(
            f"{algorithm}:{value[:12]}"
            for subject in said.subject
            for algorithm, value in subject.digest.items()
        )
        return Refusal("other-image", f"{name} is about another image ({others or 'none'})")
    return SignedVerdict(item.place, signer, held)


def _find_signer(
    item: AttachedEnvelope, envelope: Envelope, name: str, demands: AdmissionDemands
) -> PublicKey | Identity | Refusal:
    """Return the trusted signer of an envelope, or the reason why it has none."""
    key = envelope.find_signer(demands.keys)
    if key is not None:
        return key
    if item.certified and demands.certificates is not None:
        try:
            return demands.certificates.verify_signer(item.certified, envelope)
        except CertificateError as error:
            return Refusal(error.reason, f"{name} {error}")
    if item.certified:
        return Refusal(
            "other-key", f"{name} is signed without a key; say by whom with --identity and --issuer"
        )
    if not demands.keys and not item.hint:
        return Refusal("stripped", f"{name} has no certificate with it, which says who signed")
    if item.hint in {trusted.hint for trusted in demands.keys}:
        return Refusal("changed", f"{name} was changed after it was signed")
    signer = f" ({item.hint[:_SHOWN]})" if item.hint else ""
    another = "another key" if demands.keys else "a key, and not by an identity"
    return Refusal(
        "other-key",
        f"{name} is signed by {another}{signer}"
        + ("" if item.hint else ", or was changed after it was signed"),
    )


def _runs_on(platform: Platform, held: TargetVerdict) -> bool:
    try:
        return platform.runs(Platform.parse(held.target.platform))
    except UndecidedError:
        return False


def verify(
    registry: Registry, source: str, reference: Reference, demands: AdmissionDemands
) -> Verification:
    """Check that the image of a name has a verdict that meets the demands.

    Of several images under one name, that of the platform counts. Raises `UndecidedError` if the
    registry cannot be reached, or has no image of that name or platform.
    """
    top = registry.resolve(reference)
    image = reference.at(top.digest)
    kinds = ""
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
