"""What envelopes beside an image prove, and what a verdict that is proved lacks today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from buildmatrix.attestation import statement, verdict
from buildmatrix.attestation.certificates import CertificateCheck, CertificateError, Identity
from buildmatrix.attestation.envelope import IN_TOTO, Envelope
from buildmatrix.attestation.fetch import AttachedEnvelope
from buildmatrix.attestation.keys import PublicKey
from buildmatrix.attestation.verdict import TargetVerdict
from buildmatrix.errors import UndecidedError
from buildmatrix.oci.documents import Platform
from buildmatrix.phrases import count, listing
from buildmatrix.reports.verify.model import Reason, Refusal
from buildmatrix.rules.model import Gate, GateState
from buildmatrix.rules.waivers import ran_out

#: Characters of a foreign name in a sentence.
_SHOWN = 19
_STATES: dict[GateState, str] = {
    "failed": "failed",
    "undecided": "is undecided",
    "not-run": "did not run",
}


@dataclass(frozen=True, slots=True)
class Demands:
    """What an image has to be, to be admitted."""

    backend: str
    keys: Sequence[PublicKey]
    today: date
    #: How old the catalogue may be; None for any age.
    max_age: timedelta | None = None
    #: Whether smoke commands must have run.
    smoke: bool = True
    #: What it has to run on, and which of several images under one name is meant; None for any.
    platform: Platform | None = None
    #: What checks signatures that were made without a key; None where no identity may sign.
    certificates: CertificateCheck | None = None


@dataclass(frozen=True, slots=True)
class Signed:
    """A verdict, who signed it, and where it lies."""

    place: str
    signer: PublicKey | Identity
    verdict: TargetVerdict


@dataclass(slots=True)
class Sifted:
    """What came of envelopes: verdicts that somebody trusted signed, and the others."""

    signed: list[Signed] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def sift(envelopes: Iterable[AttachedEnvelope], digest: str, demands: Demands) -> Sifted:
    """Which of the envelopes hold a verdict about `digest`. A payload that nobody trusted signed is
    never parsed.
    """
    sifted = Sifted()
    for item in envelopes:
        try:
            signed = _signed(item, digest, demands)
        except _RefusedError as refused:
            sifted.refusals.append(Refusal(refused.reason, str(refused)))
            continue
        if signed is not None:
            sifted.signed.append(signed)
    return sifted


def newest(signed: Sequence[Signed], backend: str) -> Signed | Refusal:
    """The verdict that counts: of those for the backend, the last."""
    fitting = [item for item in signed if item.verdict.target.backend == backend]
    if fitting:
        return max(fitting, key=lambda item: item.verdict.judged)
    backends = sorted({item.verdict.target.backend for item in signed})
    return Refusal(
        "other-backend", f"the image was judged for {listing(backends)}, and not for {backend}"
    )


def lacks(held: TargetVerdict, demands: Demands) -> Iterator[Refusal]:
    """What a verdict lacks of what is demanded today."""
    if demands.platform is not None and not _runs(demands.platform, held):
        yield Refusal(
            "other-platform",
            f"the image was judged for {held.target.platform}, and not for {demands.platform}",
        )
    yield from _gates(held, smoke=demands.smoke)
    if held.counts.error:
        yield Refusal(
            "finding",
            f"{count(held.counts.error, 'error')} open: it was built with "
            f"--fail-on {held.rules.fail_on}",
        )
    yield from _expired(held, demands.today)
    yield from _age(held, demands)


class _RefusedError(Exception):
    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def _signed(item: AttachedEnvelope, digest: str, demands: Demands) -> Signed | None:
    """What an envelope proves of `digest`; None where it holds no verdict at all."""
    name = f"the attestation {item.place[:_SHOWN]}"
    envelope = item.envelope
    if item.trouble == "gone":
        raise _RefusedError("stripped", f"{name} is listed, and the registry does not have it")
    if envelope is None:
        raise _RefusedError("unreadable", f"{name} cannot be read: {item.why}")
    if not envelope.signatures:
        raise _RefusedError("stripped", f"{name} has lost its signature")
    signer = _signer(item, envelope, name, demands)
    if envelope.payload_type != IN_TOTO:
        return None
    try:
        said = statement.parse(envelope.payload)
        if said.predicate_type != verdict.PREDICATE_TYPE:
            return None
        held = verdict.parse(bytes(said.predicate))
    except ValueError as error:
        raise _RefusedError("unreadable", f"{name} cannot be read: {error}") from None
    if not said.is_about(digest):
        others = listing(
            f"{algorithm}:{value[:12]}"
            for subject in said.subject
            for algorithm, value in subject.digest.items()
        )
        raise _RefusedError("other-image", f"{name} is about another image ({others or 'none'})")
    return Signed(item.place, signer, held)


def _signer(
    item: AttachedEnvelope, envelope: Envelope, name: str, demands: Demands
) -> PublicKey | Identity:
    """Who signed an envelope, of those that may. Raises `_RefusedError`."""
    key = envelope.find_signer(demands.keys)
    if key is not None:
        return key
    if item.certified and demands.certificates is not None:
        try:
            return demands.certificates.verify_signer(item.certified, envelope)
        except CertificateError as error:
            raise _RefusedError(error.reason, f"{name} {error}") from None
    if item.certified:
        raise _RefusedError(
            "other-key", f"{name} is signed without a key; say by whom with --identity and --issuer"
        )
    if not demands.keys and not item.hint:
        raise _RefusedError("stripped", f"{name} has no certificate with it, which says who signed")
    if item.hint in {trusted.hint for trusted in demands.keys}:
        raise _RefusedError("changed", f"{name} was changed after it was signed")
    signer = f" ({item.hint[:_SHOWN]})" if item.hint else ""
    another = "another key" if demands.keys else "a key, and not by an identity"
    raise _RefusedError(
        "other-key",
        f"{name} is signed by {another}{signer}"
        + ("" if item.hint else ", or was changed after it was signed"),
    )


def _runs(platform: Platform, held: TargetVerdict) -> bool:
    try:
        return platform.runs(Platform.parse(held.target.platform))
    except UndecidedError:
        return False


def _gates(held: TargetVerdict, *, smoke: bool) -> Iterator[Refusal]:
    required: list[Gate] = [gate for gate in held.required if smoke or gate != "smoke"]
    for gate in required:
        state = held.gates.get(gate, "not-run")
        if state != "passed":
            yield Refusal("gate", f"the gate {gate} {_STATES[state]}")
    failed = [gate for gate, state in held.gates.items() if state in ("failed", "undecided")]
    for gate in failed:
        if gate not in required:
            yield Refusal("gate", f"the gate {gate} {_STATES[held.gates[gate]]}")


def _expired(held: TargetVerdict, today: date) -> Iterator[Refusal]:
    for finding in held.findings:
        over = ran_out(finding.rule, finding.distribution, finding.accepted, today)
        if over is not None:
            yield Refusal("expired", over)


def _age(held: TargetVerdict, demands: Demands) -> Iterator[Refusal]:
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
