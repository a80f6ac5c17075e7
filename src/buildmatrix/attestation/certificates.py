"""Verification of keyless signatures: the signer's identity and the transparency log.

Works offline: the bundle contains the certificate, its timestamp of the certificate log, and the
entry of the transparency log with its proof.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from buildmatrix.attestation.envelope import Envelope
from buildmatrix.text import printable, shown

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import Bundle, TrustedRoot

#: Extensions of Fulcio's certificates: names other than addresses, and the issuer, as text and in
#: DER (https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md).
_OTHER_NAME = "1.3.6.1.4.1.57264.1.7"
_ISSUER = "1.3.6.1.4.1.57264.1.1"
_ISSUER_DER = "1.3.6.1.4.1.57264.1.8"
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a signer: a subject, and the URL of its issuer."""

    #: `https://github.com/acme/inferno/.github/workflows/release.yml@refs/tags/1.4.0`. In accepted
    #: identities, `*` matches any text.
    subject: str
    issuer: str

    def covers(self, subject: str) -> bool:
        """Return True if the subject matches the pattern."""
        pattern = ".*".join(map(re.escape, self.subject.split("*")))
        return re.fullmatch(pattern, subject, re.DOTALL) is not None


class CertificateError(Exception):
    """Error for an unacceptable signature; `reason` is one of `reports.verify.Reason`."""

    def __init__(
        self,
        reason: Literal[
            "changed", "certificate", "other-identity", "other-issuer", "stripped", "unreadable"
        ],
        message: str,
    ) -> None:
        super().__init__(message)
        self.reason = reason


class CertificateCheck:
    """Verifier of bundles against accepted identities."""

    def __init__(self, identities: Sequence[Identity], root: TrustedRoot) -> None:
        from sigstore.verify import Verifier

        self._identities = identities
        self._verifier = Verifier(trusted_root=root)

    def verify_signer(self, data: bytes, envelope: Envelope) -> Identity:
        """Return the verified identity that signed the envelope of a bundle.

        Raises `CertificateError`, whose text continues a sentence about the attestation.

        Args:
            data: the bundle.
            envelope: the envelope in it, as parsed by us.
        """
        bundle = _parse_bundle(data)
        certificate = bundle.signing_certificate
        policy = _Policy(self._identities)
        try:
            held = self._verifier.verify_dsse(bundle, policy)
        # Raises errors of its own, and of the libraries that it uses.
        except Exception as error:
            raise _explain_refusal(bundle, envelope, policy, error) from None
        if held != (envelope.payload_type, envelope.payload):
            raise CertificateError("unreadable", "can be read in two ways")
        return Identity(_subjects(certificate)[0], _issuer(certificate))


class _Policy:
    """Policy that the library applies to a trusted certificate."""

    def __init__(self, identities: Sequence[Identity]) -> None:
        self._identities = identities
        self.was_consulted = False
        self.refusal: CertificateError | None = None

    def verify(self, cert: Certificate) -> None:
        """Raise the library's error if the identity is not accepted."""
        from sigstore.errors import VerificationError

        self.was_consulted = True
        subjects, issuer = _subjects(cert), _issuer(cert)
        who = _safe_text(subjects[0] if subjects else "no subject")
        if len(subjects) != 1 or not any(item.covers(subjects[0]) for item in self._identities):
            accepted = " or ".join(item.subject for item in self._identities)
            self.refusal = CertificateError(
                "other-identity", f"is signed by {who}, not by {accepted}"
            )
        elif not any(item.issuer == issuer for item in self._identities):
            accepted = self._identities[0].issuer
            self.refusal = CertificateError(
                "other-issuer",
                f"is signed by {who} with the issuer {_safe_text(issuer) or 'no issuer'}, "
                f"not {accepted}",
            )
        if self.refusal is not None:
            raise VerificationError(str(self.refusal))


def _parse_bundle(data: bytes) -> Bundle:
    from sigstore.models import Bundle

    try:
        return Bundle.from_json(data)
    except Exception as error:
        text = _safe_text(str(error))
        # Messages of the library and of its data model.
        if any(word in text for word in ("tlogEntries", "log entry", "inclusion")):
            why = "lacks its entry in the transparency log"
            raise CertificateError("stripped", why) from None
        raise CertificateError("unreadable", f"has a bundle that cannot be read: {text}") from None


def _explain_refusal(
    bundle: Bundle, envelope: Envelope, policy: _Policy, error: Exception
) -> CertificateError:
    """Return the reason for which a bundle was refused."""
    if policy.refusal is not None:
        return policy.refusal
    certificate = bundle.signing_certificate
    signed = _logged_time(bundle)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not policy.was_consulted and signed is not None and not first <= signed <= last:
        return CertificateError(
            "certificate",
            f"was signed at {_format_time(signed)}, but its certificate was valid from "
            f"{_format_time(first)} to {_format_time(last)}",
        )
    if not policy.was_consulted:
        return CertificateError(
            "certificate", f"has a certificate that is not trusted: {_safe_text(str(error))}"
        )
    if not _is_signed(certificate, envelope):
        return CertificateError("changed", "was changed after it was signed")
    return CertificateError(
        "changed", f"differs from its entry in the transparency log: {_safe_text(str(error))}"
    )


def _is_signed(certificate: Certificate, envelope: Envelope) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec

    from buildmatrix.attestation.keys import PublicKey

    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    return envelope.find_signer((PublicKey(key, ""),)) is not None


def _logged_time(bundle: Bundle) -> datetime | None:
    """Return the signing time in the log; None if the log has none."""
    seconds = bundle.log_entry._inner.integrated_time
    try:
        return datetime.fromtimestamp(int(seconds), UTC) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def _subjects(certificate: Certificate) -> list[str]:
    """Return the names in a certificate: URLs of workflows, e-mail addresses of people."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    others = [
        # A UTF8String with its type and length.
        _der_text(name.value)
        for name in names.get_values_for_type(x509.OtherName)
        if name.type_id.dotted_string == _OTHER_NAME
    ]
    addresses = names.get_values_for_type(x509.RFC822Name)
    return [*names.get_values_for_type(x509.UniformResourceIdentifier), *addresses, *others]


def _issuer(certificate: Certificate) -> str:
    """Return the URL of the issuer; empty if the certificate has none."""
    from cryptography import x509

    held = {
        extension.oid.dotted_string: extension.value.value
        for extension in certificate.extensions
        if isinstance(extension.value, x509.UnrecognizedExtension)
    }
    if _ISSUER_DER in held:
        return _der_text(held[_ISSUER_DER])
    return held.get(_ISSUER, b"").decode("utf-8", "replace")


def _der_text(data: bytes) -> str:
    """Decode a UTF8String in DER; empty for anything else."""
    from cryptography.hazmat import asn1

    try:
        return asn1.decode_der(str, data)
    except ValueError:
        return ""


def _format_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _safe_text(text: str) -> str:
    return printable(shown(text))[:_MAX_TEXT]
