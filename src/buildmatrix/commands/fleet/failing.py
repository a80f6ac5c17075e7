"""Why a part of the work came to nothing: one sentence, and whether the same may do better later.

Whatever a registry or the bytes of an image do ends here: one image never ends the work of others.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from buildmatrix.errors import BuildmatrixError
from buildmatrix.http.failures import RequestError
from buildmatrix.text import printable, shown
from buildmatrix.trees.base import defect, reason

#: What only this machine is to blame for, and only now.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
#: Credentials run out and are renewed.
_DENIED = (401, 403)
_LONGEST = 1000


class WorkerKilledError(Exception):
    """A task was handed back since its workers died, time and again."""


class WorkError(Exception):
    """What a worker did raised what nobody expected; its text is a sentence about that."""


class LateError(WorkError):
    """A task did not end in time; its text is a sentence about that."""


def too_long(what: str, limit: float) -> str:
    """The sentence about what took longer than the time limit, in seconds."""
    return (
        f"{what} took more than {limit:.0f} s, the time limit of one image or layer; run it again "
        "with a higher --time-limit if it is only slow"
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be done."""

    #: One sentence, fit to be shown.
    text: str
    #: Whether it may pass.
    again: bool
    #: Whether a registry refused it for want of credentials, or for those that this machine has.
    denied: bool = False
    #: Seconds for which a registry asks to be left alone; 0 for no such wish.
    wait: float = 0.0


def failure_of(error: Exception, what: str = "") -> Failure:
    """The failure that an exception is; `what` begins the sentence where it names nothing."""
    begin = f"{what}: " if what else ""
    if isinstance(error, RequestError):
        denied = error.status in _DENIED
        return _failure(
            error.message, error.is_temporary or denied, denied=denied, wait=error.wait or 0.0
        )
    if isinstance(error, BuildmatrixError):
        return _failure(error.message, False)
    if isinstance(error, MemoryError):
        return _failure(f"{begin}there was not enough memory", True)
    if isinstance(error, OSError):
        return _failure(f"{begin}{reason(error)}", error.errno in _PASSING)
    return _failure(f"{begin}{defect(error)}", False)


def _failure(text: str, again: bool, *, denied: bool = False, wait: float = 0.0) -> Failure:
    return Failure(printable(shown(" ".join(text.split())))[:_LONGEST], again, denied, wait)
