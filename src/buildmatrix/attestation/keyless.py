"""Signatures without a key of one's own: by the identity that a CI system gives to its job.

Sigstore's Fulcio gives a certificate for that identity, good for ten minutes, and Rekor keeps in a
public log that it was used: what was signed, as a hash, and by whom. The library `sigstore` speaks
with both; it is imported where it is used alone.
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

#: Bytes of a file of trust; that of the public services has 7,000.
_LARGEST_FILE = 4 << 20
#: The library waits without end; three services answer within some seconds.
_SECONDS = 120.0
_LONGEST_MESSAGE = 300
#: Times that a certificate is asked for, which may run out before it is used.
_TRIES = 2
_Result = TypeVar("_Result")


class KeylessSigner:
    """Signs statements by the identity of this job. For one thread."""

    def __init__(self, trust: ClientTrustConfig) -> None:
        self._trust = trust
        self._signer: Signer | None = None

    def sign(self, payload: bytes) -> bytes:
        """Sigstore's bundle of an in-toto statement: signature, certificate and log entry.

        Raises `UndecidedError` where one of the services does not do its part.
        """
        from sigstore.dsse import Statement

        def work() -> bytes:
            for attempt in range(_TRIES):
                try:
                    return self._now().sign_dsse(Statement(payload)).to_json().encode()
                except Exception as error:
                    # What has run out since the last statement; its classes are not public.
                    over = type(error).__name__ in ("ExpiredCertificate", "ExpiredIdentity")
                    if not over or attempt == _TRIES - 1:
                        raise
                    self._signer = None
            raise AssertionError("the last try returns or raises")

        return _within(work, "the verdict was not signed")

    def _now(self) -> Signer:
        if self._signer is None:
            from sigstore.oidc import IdentityToken
            from sigstore.sign import Signer, SigningContext

            context = SigningContext.from_trust_config(self._trust)
            # Asked for as late as this: a token is good for some minutes, and a build takes hours.
            self._signer = Signer(IdentityToken(_token()), context)
        return self._signer


def keyless_signer(trust_root: Path | None) -> KeylessSigner:
    """The signer of this job. `trust_root` names private services; None for the public ones.

    Raises `UsageError` where this environment has no identity, `ComponentError` where the library
    is not installed, and `UndecidedError` where the public services cannot be asked for.
    """
    need_library()
    _token()
    if trust_root is not None:
        return KeylessSigner(_client_trust(trust_root))
    from sigstore.models import ClientTrustConfig

    return KeylessSigner(
        _within(ClientTrustConfig.production, "the addresses of sigstore's public services")
    )


def trusted_root(path: Path | None) -> TrustedRoot:
    """Whose certificates and logs are trusted; None for those of the public services.

    A file is a trusted root, or the trust configuration of a client. Nothing is asked for: the
    public ones are those that came with the library, or that it brought since.

    Raises `UsageError`, and `ComponentError` where the library is not installed.
    """
    need_library()
    from sigstore.models import ClientTrustConfig, TrustedRoot

    if path is None:
        return ClientTrustConfig.production(offline=True).trusted_root
    data = _read(path)
    try:
        return ClientTrustConfig.from_json(data).trusted_root
    except Exception:
        try:
            root = TrustedRoot.from_file(str(path))
            root.get_fulcio_certs()
        except Exception:
            raise UsageError(
                f"{path} is no trusted root of sigstore, and no trust configuration of a client"
            ) from None
        return root


def need_library() -> None:
    """Raises `ComponentError` where the library of the extra `keyless` is not installed."""
    from importlib.util import find_spec

    if find_spec("sigstore") is None:
        raise ComponentError(
            "signatures by an identity, without a key, need a library that is not installed; "
            "install `buildmatrix[keyless]`"
        )


def _client_trust(path: Path) -> ClientTrustConfig:
    from sigstore.models import ClientTrustConfig

    data = _read(path)
    try:
        trust = ClientTrustConfig.from_json(data)
        # Both are looked at when they are asked for.
        trust.signing_config.get_fulcio()
        trust.trusted_root.get_fulcio_certs()
    except Exception:
        raise UsageError(
            f"{path} is no trust configuration of a client (trusted root and signing "
            "configuration of sigstore in one document), which signing needs"
        ) from None
    return trust


def _read(path: Path) -> str:
    try:
        data = read_at_most(path, _LARGEST_FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST_FILE:
        raise UsageError(f"{path} has more than {_LARGEST_FILE >> 20} MiB")
    return data.decode("utf-8", "replace")


def _token() -> str:
    """The identity of this job as a token, which is a secret. Raises `UsageError`."""
    from sigstore.oidc import IdentityError, detect_credential

    try:
        token = detect_credential()
    except IdentityError as error:
        # An answer that was no token may still hold one.
        text = printable(shown(str(error))).partition(", body=")[0][:_LONGEST_MESSAGE]
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


def _within(work: Callable[[], _Result], what: str) -> _Result:
    """The result of a call into the library, which has many kinds of errors and no time-outs."""
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
    # Its traceback would hold what was sent, the token too.
    raise UndecidedError(f"{what}: {type(error).__name__}: {text[:_LONGEST_MESSAGE]}") from None
