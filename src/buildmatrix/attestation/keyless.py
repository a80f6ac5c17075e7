"""Keyless signatures, by the identity of a CI job.

Sigstore's Fulcio issues a certificate for the identity, valid for ten minutes, and Rekor records
its use in a public log: the hash of the signed content and the identity. The library `sigstore`,
which talks to both, is only imported when needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from buildmatrix.errors import ComponentError, UndecidedError, UsageError
from buildmatrix.files import read_at_most
from buildmatrix.text import printable, shown

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig, TrustedRoot
    from sigstore.sign import Signer

#: Bytes of a trust file; that of the public services has 7,000.
_MAX_FILE = 4 << 20
#: The library has no timeouts; three services respond within seconds.
_SECONDS = 120.0
_MAX_MESSAGE = 300
#: Attempts to get a certificate, which may expire before it is used.
_ATTEMPTS = 2
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

        def work() -> bytes:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._current_signer().sign_dsse(Statement(payload)).to_json().encode()
                except Exception as error:
                    # Expired since the last statement; the classes are not public.
                    over = type(error).__name__ in ("ExpiredCertificate", "ExpiredIdentity")
                    if not over or attempt == _ATTEMPTS - 1:
                        raise
                    self._signer = None
            raise AssertionError("the last try returns or raises")

        return _call_with_timeout(work, "the verdict was not signed")

    def _current_signer(self) -> Signer:
        if self._signer is None:
            from sigstore.oidc import IdentityToken
            from sigstore.sign import Signer, SigningContext

            context = SigningContext.from_trust_config(self._trust)
            # As late as possible: a token is valid for some minutes, and a build takes hours.
            self._signer = Signer(IdentityToken(_detect_token()), context)
        return self._signer


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
            "keyless signatures require a library that is not installed; "
            "install `buildmatrix[keyless]`"
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
            advice = "; give the job `permissions: id-token: write`"
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
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    if results:
        return results[0]
    if not errors:
        raise UndecidedError(f"{what}: sigstore's services did not answer in {_SECONDS:.0f} s")
    error = errors[0]
    if isinstance(error, UsageError):
        raise UndecidedError(f"{what}: {error.message}") from None
    text = printable(shown(str(error))).strip() or str(error.__cause__ or "")
    # The traceback would contain the request with its token.
    raise UndecidedError(f"{what}: {type(error).__name__}: {text[:_MAX_MESSAGE]}") from None
