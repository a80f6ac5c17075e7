"""A verification as text for a terminal or a log of an admission controller."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import count
from buildmatrix.reports.run.table_states import STATES
from buildmatrix.reports.terminal import Painter, wrapped
from buildmatrix.reports.verify.model import Proof, Verification
from buildmatrix.rules.registry import rule_of
from buildmatrix.spec.model import PolicySeverity
from buildmatrix.text import printable

_INDENT = "  "


def render(verification: Verification, *, width: int, color: bool) -> str:
    """The answer first, then each reason or what the proof says."""
    paint = Painter(color)
    return "\n".join(_lines(verification, max(width, 40), paint)) + "\n"


def _lines(held: Verification, width: int, paint: Painter) -> Iterator[str]:
    state = paint("verified", "green") if held.verified else paint("REFUSED", "red")
    yield f"{state}  {printable(held.source)} for {printable(held.backend)}"
    yield f"{_INDENT}{printable(held.repository)}@{printable(held.digest)}"
    for refusal in held.refusals:
        for line in wrapped(refusal.message, width, _INDENT, _INDENT * 2):
            yield paint(line, "red")
    if held.proof is not None:
        yield from _proof(held.proof, width, paint)
    for note in held.notes:
        yield from wrapped(f"note: {note}", width, _INDENT, _INDENT * 2)


def _proof(proof: Proof, width: int, paint: Painter) -> Iterator[str]:
    subject = f"{proof.target} ({proof.backend} {proof.runtime}, {proof.platform})"
    yield from wrapped(f"judged {proof.judged} as {subject}", width, _INDENT, _INDENT * 2)
    if proof.identity is not None:
        text = f"signed by {proof.identity}, as {proof.issuer} knows it"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)
    judge = f"by buildmatrix {proof.tool} with the catalogue of {proof.catalogue}"
    yield from wrapped(judge, width, _INDENT, _INDENT * 2)
    states = [
        f"{gate} {paint(STATES[state][0], STATES[state][1])}" for gate, state in proof.gates.items()
    ]
    findings = ", ".join(count(number, name) for name, number in proof.findings.items())
    yield f"{_INDENT}{'  '.join(states)}  {findings}, {len(proof.accepted)} accepted"
    for item in proof.accepted:
        owner = f" by {item.owner}" if item.owner else ""
        until = f" until {item.expires}" if item.expires else ""
        text = f"accepted{owner}{until}: {item.reason}"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)
    counted = [_counted(rule, severity) for rule, severity in proof.severities.items()]
    if counted:
        yield from wrapped(f"by the policy {', '.join(counted)}", width, _INDENT, _INDENT * 2)
    if proof.rungs_passed is not None:
        passed = ", ".join(proof.rungs_passed) or "no rung"
        text = f"passed where it was built: {passed} of preflight"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)
    if proof.smoke_not_run:
        text = f"did not run where it was built: smoke {', '.join(proof.smoke_not_run)}"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)
    yield from wrapped(f"lock {proof.lock}", width, _INDENT, _INDENT * 2)
    yield from wrapped(f"attestation {proof.attestation}", width, _INDENT, _INDENT * 2)


def _counted(rule: str, severity: PolicySeverity) -> str:
    return f"{printable(rule)} counts as {severity} (its rule: {rule_of(rule).severity})"
