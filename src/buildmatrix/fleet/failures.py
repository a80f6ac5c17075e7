"""Failures of work, and the shared wait for registries that are unavailable or busy.

Failures caused by a registry or the bytes of an image end here: one image never ends the work on
others. A worker has retried a few times before it reports a temporary failure. If each of 10,000
images then retried alone, a busy registry would get 10,000 times more requests, and all images
would fail within the minute that it is unavailable.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct, field

from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.base.text import printable, shown
from buildmatrix.facts.trees.base import defect, reason
from buildmatrix.fleet.model import WorkerAnswer
from buildmatrix.net.addresses import RequestError

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


class Failure(Struct, frozen=True):
    """Failure of an operation."""

    #: One sentence, safe to display; empty for no failure.
    text: str = ""
    #: True if it may be temporary.
    again: bool = False
    #: True if a registry refused it for missing or invalid credentials.
    denied: bool = False
    #: Seconds of a registry's rate limit; 0 for none.
    wait: float = 0.0


def make_failure(error: Exception, what: str = "") -> Failure:
    """Convert an exception to a failure; `what` begins the sentence if it has no subject."""
    begin = f"{what}: " if what else ""
    denied, wait, again = False, 0.0, False
    if isinstance(error, BuildmatrixError):
        text = error.message
        if isinstance(error, RequestError):
            denied, wait = error.status in _DENIED, error.wait or 0.0
            again = error.is_temporary or denied
    elif isinstance(error, MemoryError):
        text, again = f"{begin}there was not enough memory", True
    elif isinstance(error, OSError):
        text, again = f"{begin}{reason(error)}", error.errno in _TEMPORARY
    else:
        text = f"{begin}{defect(error)}"
    return Failure(printable(shown(" ".join(text.split())))[:_LONGEST], again, denied, wait)


Answer = TypeVar("Answer", bound=WorkerAnswer)
#: Unanswered questions after which the user is notified.
_NOTIFIED_FAILURES = 2


class RegistryUnavailableError(Exception):
    """A registry was waited for long enough; the text is the sentence."""


class RequeuedError(Exception):
    """A question was not asked, since another one got a temporary failure."""


class WaitingOptions(Struct, frozen=True, kw_only=True):
    """Waiting times for registries, in seconds."""

    #: Without any useful answer; and if others get some.
    longest: float = 180.0
    longest_alone: float = 60.0
    #: Between two questions: doubles from the first to the last.
    first_pause: float = 1.0
    last_pause: float = 15.0

    def pause(self, failed: int) -> float:
        """Return the pause after this many unanswered questions."""
        return min(self.first_pause * 2.0 ** min(failed, 30), self.last_pause)


class _RegistryState(Struct):
    #: Time of its last useful answer, and questions without one since then.
    answered: float = float("-inf")
    failing: set[object] = field(default_factory=set)
    #: Start of the outage for everyone; None if unknown.
    away_since: float | None = None
    #: Time of the next question, and failures since the outage began.
    next: float = 0.0
    failed: int = 0
    #: True if caused by missing credentials.
    is_denied: bool = False
    #: Held by the one question at a time during an outage, in turn.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def state(self) -> str:
        """Describe its problem, for a sentence."""
        return "refusing the credentials of workers" if self.is_denied else "away or busy"


class RegistryWaiting:
    """State of the registries of a run. Belongs to one event loop."""

    def __init__(self, options: WaitingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._hosts: dict[str, _RegistryState] = {}
        #: Number of repeated questions.
        self.repeated = 0

    async def ask(self, name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of `ask` about the registry `name`, with limited retries if temporary.

        If the failure persists, that is the last answer. Raises `RegistryUnavailableError` if the
        registry has been unavailable for so long that it is not even asked.
        """
        host = self._hosts.setdefault(name, _RegistryState())
        first: float | None = None
        for failed in itertools.count():
            try:
                if host.away_since is None:
                    answer = await ask()
                else:
                    answer = await self._in_turn(host, name, ask)
            except RequeuedError:
                continue
            now = self._now()
            if not answer.again:
                host.answered, host.away_since = now, None
                host.failing.clear()
                return answer
            if answer.denied and host.answered == float("-inf"):
                # The credentials never worked, so there is nothing to renew.
                return answer
            host.is_denied = answer.denied
            first = now if first is None else first
            # A question that fails alone is itself broken; others need not wait for it.
            host.failing.add(ask)
            if len(host.failing) > 1 and host.away_since is None:
                host.away_since, host.failed = now, 0
                host.next = now + max(self._options.pause(0), answer.wait)
            is_alone = host.answered > first
            limit = self._options.longest_alone if is_alone else self._options.longest
            if now + answer.wait - first > limit:
                return answer
            self.repeated += 1
            if host.away_since is None:
                await asyncio.sleep(max(self._options.pause(failed), answer.wait))
        raise AssertionError("counting has no end")

    async def _in_turn(
        self, host: _RegistryState, name: str, ask: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Ask an unavailable registry from time to time, one question at a time."""
        async with host.turn:
            since = host.away_since
            if since is not None:
                left, longest = host.next - self._now(), self._options.longest
                if left > longest:
                    raise RegistryUnavailableError(
                        f"{name} is rate-limited for {math.ceil(left)} s and was not asked for "
                        "this; run it again later"
                    )
                if self._now() - since > longest and left > 0:
                    raise RegistryUnavailableError(
                        f"{name} was {host.state} for {longest:.0f} s and was not asked for this; "
                        "run it again later"
                    )
                await asyncio.sleep(left)
                answer = await ask()
                if answer.again:
                    host.failed += 1
                    if host.failed == _NOTIFIED_FAILURES:
                        self._note(f"{name} is {host.state}: waiting for it")
                    host.next = self._now() + max(self._options.pause(host.failed), answer.wait)
                return answer
        # It answered another question meanwhile.
        return await ask()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
