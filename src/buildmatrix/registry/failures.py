"""Errors of registries, each with one sentence for the user."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from json import JSONDecodeError

from buildmatrix.http.failures import TEMPORARY_STATUSES, RequestError, retry_after
from buildmatrix.http.requests import HttpResponse
from buildmatrix.registry.credentials import RegistryLogin
from buildmatrix.strict_json import parse_json
from buildmatrix.text import printable, shown

#: Maximum bytes of an error response, and characters of its message.
_MAX_RESPONSE = 64 << 10
_MAX_MESSAGE = 300


def error_for_response(
    response: HttpResponse,
    who: str,
    host: str,
    *,
    wanted: str = "",
    login: RegistryLogin | None = None,
    secrets: tuple[str, ...] = (),
    troubles: tuple[str, ...] = (),
    changes: bool = False,
) -> RequestError:
    """Return the error for an unexpected response.

    Args:
        response: of the registry or its token server; its body is read.
        who: subject of the sentence.
        host: registry, as for `docker login`.
        wanted: requested content: `the manifest 1.0`.
        login: credentials sent.
        secrets: further secrets to remove from the message.
        troubles: reasons why credentials may be missing.
        changes: True for a write.
    """
    status = response.status
    why = _registry_message(response, (*(login.secrets if login else ()), *secrets))
    to = f" to {wanted}" if wanted else ""
    if status in TEMPORARY_STATUSES:
        wait = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        busy = " (too many requests)" if status == 429 else ""
        advice = "; try again later" if wait is None else f"; retry after {math.ceil(wait)} s"
        text = f"{who} answers {status}{busy}{to}{advice}{why}"
        return RequestError(text, is_temporary=True, wait=wait, status=status)
    meaning = _explain_status(response, host, wanted, login, changes)
    also = "".join(f"; {trouble}" for trouble in troubles) if status in (401, 403) else ""
    return RequestError(f"{who} {meaning}{why}{also}", status=status)


def _explain_status(
    response: HttpResponse, host: str, wanted: str, login: RegistryLogin | None, changes: bool
) -> str:
    status = response.status
    if status in (401, 403) and login is not None:
        if status == 401:
            return f"does not take the credentials from {login.source} (401)"
        right = "write" if changes else "read"
        return f"does not let the credentials from {login.source} {right} here (403)"
    if status in (401, 403):
        return f"wants credentials ({status}); log in with `docker login {host}`"
    if status in (404, 410):
        return f"does not have {wanted or 'it'} ({status})"
    if status == 413:
        return f"does not take so large a body ({status})"
    if status == 416:
        return f"does not have these bytes of {wanted or 'it'} (416)"
    return f"answers {status}" + (f" to {wanted}" if wanted else "")


def _registry_message(response: HttpResponse, secrets: tuple[str, ...]) -> str:
    """Return the registry's own message (distribution specification, "Error Codes")."""
    try:
        document = parse_json(response.read(_MAX_RESPONSE))
    except (JSONDecodeError, UnicodeDecodeError, RequestError):
        return ""
    errors = document.get("errors") if isinstance(document, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    if not isinstance(first, dict):
        return ""
    texts = (first.get("code"), first.get("message"))
    text = ": ".join(text for text in texts if isinstance(text, str) and text)
    for secret in secrets:
        text = text.replace(secret, "***")
    text = printable(shown(text))[:_MAX_MESSAGE].strip().rstrip(".")
    return f': it says "{text}"' if text else ""
