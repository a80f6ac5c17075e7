"""The report of `verify`: refusals and proofs, as data and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix.base.text import count, printable
from buildmatrix.judge.model import IF_KNOWN, Acceptance, Gate, GateState
from buildmatrix.judge.registry import rule_of
from buildmatrix.matrix.model import PolicySeverity, Rung
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Data


#: Why an image is refused:
#: `no-attestation`: nothing is attached that could be a verdict;
#: `stripped`: an attestation without its signature, or one that is listed and gone;
#: `changed`: what the key signed was other bytes;
#: `other-key`: somebody else signed it;
#: `other-identity`: it was signed without a key, by somebody else;
#: `other-issuer`: by somebody of that name whom another issuer knows;
#: `certificate`: the certificate of who signed is not trusted, or was not good at that moment;
#: `timestamp`: its time of signing cannot be verified, or is of a kind that is not supported;
#: `unreadable`: it is no attestation that can be read;
#: `other-image`: it is about another digest;
#: `other-backend`: the image was judged for another backend;
#: `other-platform`: the image was judged for another platform;
#: `gate`: a gate did not pass, or did not run;
#: `finding`: an error is open, which the run was told to let pass;
#: `expired`: what was accepted until a day is not accepted any more;
#: `old-catalogue`: it was judged by a catalogue that is older than allowed;
#: `multi-platform`: the name is that of several images.
Reason = Literal[
    "no-attestation",
    "stripped",
    "changed",
    "other-key",
    "other-identity",
    "other-issuer",
    "certificate",
    "timestamp",
    "unreadable",
    "other-image",
    "other-backend",
    "other-platform",
    "gate",
    "finding",
    "expired",
    "old-catalogue",
    "multi-platform",
]


class Refusal(Struct, frozen=True):
    """One reason not to admit an image."""

    reason: Reason
    #: One sentence.
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The newest verdict about the image that the key, or the identity, signed."""

    #: Its place in the registry: digest of a manifest, or a tag.
    attestation: str
    #: The key that signed it: base64 of its SHA-256; None for an identity.
    key: str | None
    #: Keyless signer, and the issuer of that identity.
    identity: str | None = field(default=None, metadata=IF_KNOWN)
    issuer: str | None = field(default=None, metadata=IF_KNOWN)
    #: When the image was judged, in UTC.
    judged: str
    tool: str
    #: Date of the catalogue.
    catalogue: str
    target: str
    backend: str
    runtime: str
    platform: str
    lock: str
    gates: Mapping[Gate, GateState]
    smoke_not_run: tuple[str, ...] = ()
    #: Rungs of `preflight` that it passed where it was built; None where it did not climb.
    rungs_passed: tuple[Rung, ...] | None = field(default=None, metadata=IF_KNOWN)
    #: Open findings by severity.
    findings: Mapping[str, int] = field(default_factory=dict)
    accepted: tuple[Acceptance, ...] = ()
    #: Code of a rule → what the policy made of its findings.
    severities: Mapping[str, PolicySeverity] = field(default_factory=dict)


class Verification(Struct, frozen=True, kw_only=True):
    """Answer of `verify` about one image."""

    schema: Literal["buildmatrix/verification/1"] = "buildmatrix/verification/1"
    tool: Tool = THIS_TOOL
    #: Name as given, and the required backend.
    source: str
    backend: str
    #: Host and repository, and the digest that the name had.
    repository: str
    digest: str
    verified: bool
    refusals: tuple[Refusal, ...] = ()
    #: None where no verdict about this image and this backend was signed by the key.
    proof: Proof | None = None
    #: Remarks that decide nothing; a sentence each.
    notes: tuple[str, ...] = ()


# Text


def render(verification: Verification, *, width: int, color: bool) -> str:
    """The answer first, then each reason or what the proof says."""
    return "\n".join(_lines(verification, max(width, 40), Painter(color))) + "\n"


def _lines(held: Verification, width: int, paint: Painter) -> Iterator[str]:
    def say(texts: Iterable[str]) -> list[str]:
        return [line for text in texts for line in wrapped(text, width, "  ", "    ")]

    state = paint("verified", "green") if held.verified else paint("REFUSED", "red")
    yield f"{state}  {printable(held.source)} for {printable(held.backend)}"
    yield f"  {printable(held.repository)}@{printable(held.digest)}"
    yield from (paint(line, "red") for line in say(item.message for item in held.refusals))
    if (proof := held.proof) is not None:
        yield from say(_origin(proof))
        states = [f"{gate} {paint.state(state)}" for gate, state in proof.gates.items()]
        findings = ", ".join(count(number, name) for name, number in proof.findings.items())
        yield f"  {'  '.join(states)}  {findings}, {len(proof.accepted)} accepted"
        yield from say(_details(proof))
    yield from say(f"note: {note}" for note in held.notes)


def _origin(proof: Proof) -> Iterator[str]:
    subject = f"{proof.target} ({proof.backend} {proof.runtime}, {proof.platform})"
    yield f"judged {proof.judged} as {subject}"
    if proof.identity is not None:
        yield f"signed by {proof.identity}, as {proof.issuer} knows it"
    yield f"by buildmatrix {proof.tool} with the catalogue of {proof.catalogue}"


def _details(proof: Proof) -> Iterator[str]:
    for item in proof.accepted:
        owner = f" by {item.owner}" if item.owner else ""
        until = f" until {item.expires}" if item.expires else ""
        yield f"accepted{owner}{until}: {item.reason}"
    counted = [
        f"{printable(rule)} counts as {severity} (its rule: {rule_of(rule).severity})"
        for rule, severity in proof.severities.items()
    ]
    if counted:
        yield f"by the policy {', '.join(counted)}"
    if proof.rungs_passed is not None:
        passed = ", ".join(proof.rungs_passed) or "no rung"
        yield f"passed where it was built: {passed} of preflight"
    if proof.smoke_not_run:
        yield f"did not run where it was built: smoke {', '.join(proof.smoke_not_run)}"
    yield f"lock {proof.lock}"
    yield f"attestation {proof.attestation}"


# Data


#: `already`: the tag named the image before, perhaps since an earlier run that was stopped.
MoveState = Literal["moved", "already", "failed", "not-tried"]


class TagMove(Struct, frozen=True):
    """One tag, and the image that it is to name."""

    #: `ghcr.io/acme/inferno:1.4.0-cpu`
    reference: str
    target: str
    digest: str
    #: What it named before this run, to go back to; None for a tag that was not there, and where
    #: it was not asked for.
    before: str | None = None
    state: MoveState = "not-tried"


class Promotion(Struct, frozen=True, kw_only=True):
    """Result of `promote`."""

    schema: Literal["buildmatrix/promotion/1"] = "buildmatrix/promotion/1"
    tool: Tool = THIS_TOOL
    #: Digest of the built image.
    subject: str
    #: True if all tags name their images now.
    promoted: bool
    moves: tuple[TagMove, ...]
    #: Why not; one sentence each.
    problems: tuple[str, ...] = ()


# Text


def render_promotion(promotion: Promotion, *, width: int, color: bool) -> str:
    """Each tag with what it names now and named before, then what went wrong."""
    paint = Painter(color)
    return "\n".join(_promotion_lines(promotion, max(width, 40), paint)) + "\n"


def _promotion_lines(promotion: Promotion, width: int, paint: Painter) -> Iterator[str]:
    for move in promotion.moves:
        word = state_word(move.state).ljust(9)
        yield f"{paint.state(move.state, word)}  {printable(move.reference)}"
        before = f" (before: {move.before or 'no such tag'})" if move.state == "moved" else ""
        yield f"           {move.digest}{before}"
    for problem in promotion.problems:
        for line in wrapped(problem, width):
            yield paint(line, "red")
    moved = sum(move.state == "moved" for move in promotion.moves)
    already = sum(move.state == "already" for move in promotion.moves)
    rest = len(promotion.moves) - moved - already
    parts = [f"{count(moved, 'tag')} moved", f"{already} there already"]
    yield ", ".join([*parts, f"{rest} not set"] if rest else parts)
