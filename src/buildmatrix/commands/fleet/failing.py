"""Failures of work: a sentence, and if a retry may help.

Failures caused by a registry or the bytes of an image end here: one image never ends the work on
others.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from buildmatrix.errors import BuildmatrixError
from buildmatrix.http.failures import RequestError
from buildmatrix.text import printable, shown
from buildmatrix.trees.base import defect, reason

#: Errors that only concern this machine at this moment.
_TEMPORARY = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
#: Credentials expire and are renewed.
_DENIED = (401, 403)
_LONGEST = 1000


class WorkerKilledError(Exception):
    """A task was returned since its workers died repeatedly."""


class WorkError(Exception):
    """A worker's code raised an unexpected exception; the text is a sentence about it."""


class LateError(WorkError):
    """A task exceeded its time limit; the text is a sentence about it."""


def describe_timeout(what: str, limit: float) -> str:
    """Return the sentence about work that exceeded the time limit, in seconds."""
    return (
        f"{what} took more than {limit:.0f} s, the time limit of one image or layer; run it again "
        "with a higher --time-limit if it is only slow"
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an operation."""

    #: One sentence, safe to display.
    text: str
    #: True if it may be temporary.
    again: bool
    #: True if a registry refused it for missing or invalid credentials.
    denied: bool = False
    #: Seconds of a registry's rate limit; 0 for none.
    wait: float = 0.0


def make_failure(error: Exception, what: str = "") -> Failure:
    """Convert an exception to a failure; `what` begins the sentence if it has no subject."""
    begin = f"{what}: " if what else ""
    if isinstance(error, RequestError):
        denied = error.status in _DENIED
        return _make_failure(
            error.message, error.is_temporary or denied, denied=denied, wait=error.wait or 0.0
        )
    if isinstance(error, BuildmatrixError):
        return _make_failure(error.message, False)
    if isinstance(error, MemoryError):
        return _make_failure(f"{begin}there was not enough memory", True)
    if isinstance(error, OSError):
        return _make_failure(f"{begin}{reason(error)}", error.errno in _TEMPORARY)
    return _make_failure(f"{begin}{defect(error)}", False)


def _make_failure(text: str, again: bool, *, denied: bool = False, wait: float = 0.0) -> Failure:
    return Failure(printable(shown(" ".join(text.split())))[:_LONGEST], again, denied, wait)
