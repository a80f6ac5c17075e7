"""Keyless signatures, by the identity of a CI job: signing and verification."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from buildmatrix.base.errors import ComponentError, UndecidedError, UsageError, describe_extra
from buildmatrix.base.text import printable, shown
from buildmatrix.base.threads import ended_within
from buildmatrix.facts.files import read_at_most
from buildmatrix.signing.documents import Envelope

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
    from sigstore.sign import Signer


# Signing.
#
# Sigstore's Fulcio issues a certificate for the identity, valid for ten minutes, and Rekor records
# its use in a public log: the hash of the signed content and the identity. The library `sigstore`,
# which talks to both, is only imported when needed.


#: Bytes of a trust file; that of the public services has 7,000.
_MAX_FILE = 4 << 20
#: The library has no timeouts; three services respond within seconds.
_SECONDS = 120.0
_MAX_MESSAGE = 300
_Result = TypeVar("_Result")


class KeylessSigner:
    """Signer of statements by the identity of this job. For one thread."""

    def __init__(self, trust: ClientTrustConfig) -> None:
        self._trust = trust
        self._signer: Signer | None = None

    def sign(self, payload: bytes) -> bytes:
        """Return a Sigstore bundle of an in-toto statement: signature, certificate and log entry.

        Raises `UndecidedError` if one of the services fails.
        """
        from sigstore.dsse import Statement
        from sigstore.oidc import IdentityToken
        from sigstore.sign import Signer, SigningContext

        def sign() -> bytes:
            if self._signer is None:
                context = SigningContext.from_trust_config(self._trust)
                # As late as possible: a token is valid for some minutes, and a build takes hours.
                self._signer = Signer(IdentityToken(_detect_token()), context)
            return self._signer.sign_dsse(Statement(payload)).to_json().encode()

        def work() -> bytes:
            try:
                return sign()
            except Exception as error:
                # The classes are not public.
                if type(error).__name__ not in ("ExpiredCertificate", "ExpiredIdentity"):
                    raise
            # Expired since the last statement.
            self._signer = None
            return sign()

        return _call_with_timeout(work, "the verdict was not signed")


def make_keyless_signer(trust_root: Path | None) -> KeylessSigner:
    """Create the signer of this job. `trust_root` selects private services, None the public ones.

    Raises `UsageError` if this environment has no identity, `ComponentError` if the library is not
    installed, and `UndecidedError` if the public services cannot be reached.
    """
    require_library()
    _detect_token()
    if trust_root is not None:
        return KeylessSigner(_load_client_trust(trust_root))
    from sigstore.models import ClientTrustConfig

    return KeylessSigner(
        _call_with_timeout(
            ClientTrustConfig.production, "the addresses of sigstore's public services"
        )
    )


def load_trusted_root(path: Path | None) -> TrustedRoot:
    """Load the trusted certificate authorities and logs; None for the public services.

    A file is a trusted root, or the trust configuration of a client. Works offline: the public root
    is the one included in the library, or updated by it since.

    Raises `UsageError`, and `ComponentError` if the library is not installed.
    """
    require_library()
    from sigstore.models import ClientTrustConfig, TrustedRoot

    if path is None:
        return ClientTrustConfig.production(offline=True).trusted_root
    data = _read_text(path)
    try:
        return ClientTrustConfig.from_json(data).trusted_root
    except Exception:
        try:
            root = TrustedRoot.from_file(str(path))
            root.get_fulcio_certs()
        except Exception:
            raise UsageError(
                f"{path} is neither a trusted root of sigstore nor a trust configuration of a "
                "client"
            ) from None
        return root


def require_library() -> None:
    """Raise `ComponentError` if the library of the extra `keyless` is not installed."""
    from importlib.util import find_spec

    if find_spec("sigstore") is None:
        raise ComponentError(
            "keyless signatures require sigstore, which is not installed: "
            f"{describe_extra('keyless')}"
        )


def _load_client_trust(path: Path) -> ClientTrustConfig:
    from sigstore.models import ClientTrustConfig

    data = _read_text(path)
    try:
        trust = ClientTrustConfig.from_json(data)
        # Both are validated on access.
        trust.signing_config.get_fulcio()
        trust.trusted_root.get_fulcio_certs()
    except Exception:
        raise UsageError(
            f"{path} is not a trust configuration of a client (trusted root and signing "
            "configuration of sigstore in one document), which signing requires"
        ) from None
    return trust


def _read_text(path: Path) -> str:
    try:
        data = read_at_most(path, _MAX_FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_FILE:
        raise UsageError(f"{path} has more than {_MAX_FILE >> 20} MiB")
    return data.decode("utf-8", "replace")


def _detect_token() -> str:
    """Return the identity token of this job, which is a secret. Raises `UsageError`."""
    from sigstore.oidc import IdentityError, detect_credential

    try:
        token = detect_credential()
    except IdentityError as error:
        # The response may contain a token.
        text = printable(shown(str(error))).partition(", body=")[0][:_MAX_MESSAGE]
        advice = ""
        if "permission" in text:
            advice = (
                "; give the job `permissions: id-token: write`, which a pull request from a fork "
                "never gets"
            )
        elif "SIGSTORE_ID_TOKEN" in text:
            advice = "; give the job `id_tokens: SIGSTORE_ID_TOKEN: aud: sigstore`"
        raise UsageError(f"the CI system gives this job no identity: {text}{advice}") from None
    if not token:
        raise UsageError(
            "--attest needs a key (--sign-key cosign.key, of `cosign generate-key-pair`), or an "
            "identity to sign by, and this environment has none: GitHub Actions gives it to a job "
            "with `permissions: id-token: write`, GitLab as SIGSTORE_ID_TOKEN in `id_tokens`"
        )
    return token


def _call_with_timeout(work: Callable[[], _Result], what: str) -> _Result:
    """Call the library, which has many kinds of errors and no timeouts."""
    ended = ended_within(_SECONDS, work, "sigstore")
    if ended is None:
        raise UndecidedError(f"{what}: sigstore's services did not answer in {_SECONDS:.0f} s")
    error = ended.exception()
    if error is None:
        return ended.result()
    if isinstance(error, UsageError):
        raise UndecidedError(f"{what}: {error.message}") from None
    text = printable(shown(str(error))).strip() or str(error.__cause__ or "")
    # The traceback would contain the request with its token.
    raise UndecidedError(f"{what}: {type(error).__name__}: {text[:_MAX_MESSAGE]}") from None


# Verification of the signer's identity and the transparency log.
#
# Works offline: the bundle contains the certificate, its timestamp of the certificate log, and the
# entry of the transparency log with its proof.


#: Extensions of Fulcio's certificates: names other than addresses, and the issuer, as text and in
#: DER (https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md).
_OTHER_NAME = "1.3.6.1.4.1.57264.1.7"
_ISSUER = "1.3.6.1.4.1.57264.1.1"
_ISSUER_DER = "1.3.6.1.4.1.57264.1.8"
_MAX_TEXT = 300


class Identity(Struct, frozen=True):
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
            "changed",
            "certificate",
            "other-identity",
            "other-issuer",
            "stripped",
            "timestamp",
            "unreadable",
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
        if other := _explain_support(text):
            raise other from None
        # Messages of the library and of its data model.
        if any(word in text for word in ("tlogEntries", "log entry", "inclusion")):
            why = "lacks its entry in the transparency log"
            raise CertificateError("stripped", why) from None
        raise CertificateError("unreadable", f"has a bundle that cannot be read: {text}") from None


#: Parts of the library's messages about times of signing.
_ABOUT_TIME = (
    "signed timestamp",
    "duplicate timestamp",
    "timestamp authorities",
    "timestamp response",
    "integrated time only",
    "verified time",
)


def _explain_support(text: str) -> CertificateError | None:
    """Return the reason for a message of the library about a time of signing or a kind of entry."""
    if any(words in text.lower() for words in _ABOUT_TIME):
        return CertificateError("timestamp", f"has no time of signing that can be verified: {text}")
    if "Unsupported" in text or "log entry version" in text:
        return CertificateError("unreadable", f"has a log entry that is not supported: {text}")
    return None


def _explain_refusal(
    bundle: Bundle, envelope: Envelope, policy: _Policy, error: Exception
) -> CertificateError:
    """Return the reason for which a bundle was refused."""
    if policy.refusal is not None:
        return policy.refusal
    from sigstore.errors import CertValidationError

    text = _safe_text(str(error))
    if not isinstance(error, CertValidationError) and (other := _explain_support(text)):
        return other
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
        return CertificateError("certificate", f"has a certificate that is not trusted: {text}")
    if not _is_signed(certificate, envelope):
        return CertificateError("changed", "was changed after it was signed")
    return CertificateError("changed", f"differs from its entry in the transparency log: {text}")


def _is_signed(certificate: Certificate, envelope: Envelope) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec

    from buildmatrix.signing.documents import PublicKey

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
