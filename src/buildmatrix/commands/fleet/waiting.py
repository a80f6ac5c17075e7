"""Registries that are away or busy for a while: everything that needs one waits together.

A worker has asked a few times when it says that something may work later. If the same were then
asked for each of 10,000 images, a registry that has too much to do would get 10,000 times more, and
all images would fail within the minute that it is away.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class MayPass(Protocol):
    """An answer that says whether asking again may give a better one."""

    @property
    def again(self) -> bool:
        """Whether it may."""
        ...

    @property
    def denied(self) -> bool:
        """Whether it is about credentials."""
        ...

    @property
    def wait(self) -> float:
        """Seconds for which the registry asks to be left alone; 0 for no such wish."""
        ...


Answer = TypeVar("Answer", bound=MayPass)
#: Questions without an answer, after which people want to know why nothing happens.
_NOTED = 2


class AwayError(Exception):
    """A registry was waited for long enough; its text is the sentence."""


class PutBackError(Exception):
    """A question was not put, since another one got an answer that may pass."""


def may_pass(answer: object) -> bool:
    """Whether asking again may give a better answer."""
    return bool(getattr(answer, "again", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingOptions:
    """How long registries are waited for; all times in seconds."""

    #: Without any answer of use; and where others get some.
    longest: float = 180.0
    longest_alone: float = 60.0
    #: Between two questions: doubles from the first to the last.
    first_pause: float = 1.0
    last_pause: float = 15.0

    def pause(self, failed: int) -> float:
        """After so many questions without an answer."""
        return min(self.first_pause * 2.0 ** min(failed, 30), self.last_pause)


@dataclass(slots=True)
class _Host:
    #: When it last gave an answer of use, and what it gave none to since then.
    answered: float = float("-inf")
    failing: set[object] = field(default_factory=set)
    #: Since when it gives none to anybody; None where that is not known.
    away_since: float | None = None
    #: When it may be asked again, and how often it has not answered since it is away.
    next: float = 0.0
    failed: int = 0
    #: Whether that is for want of credentials.
    is_denied: bool = False
    #: Who may ask it while it is away: one at a time, and in turn.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def state(self) -> str:
        """What is wrong with it, for a sentence."""
        return "refusing the credentials of workers" if self.is_denied else "away or busy"


class Waiting:
    """What is known of the registries of a run. Belongs to one event loop."""

    def __init__(self, options: WaitingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._hosts: dict[str, _Host] = {}
        #: Questions that were asked again.
        self.repeated = 0

    async def answer(self, name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What `ask` gives about the registry `name`; asked again, within bounds, if it may pass.

        Where it does not pass, that is the last answer. Raises `AwayError` where the registry was
        away for so long that it is not even asked.
        """
        host = self._hosts.setdefault(name, _Host())
        first: float | None = None
        for failed in itertools.count():
            try:
                if host.away_since is None:
                    answer = await ask()
                else:
                    answer = await self._in_turn(host, name, ask)
            except PutBackError:
                continue
            now = self._now()
            if not answer.again:
                host.answered, host.away_since = now, None
                host.failing.clear()
                return answer
            if answer.denied and host.answered == float("-inf"):
                # They never were good: there is nothing to be renewed.
                return answer
            host.is_denied = answer.denied
            first = now if first is None else first
            # What fails alone is broken itself: nobody has to wait for that.
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
        self, host: _Host, name: str, ask: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """The answer of a registry that is away: asked once in a while, by one at a time."""
        async with host.turn:
            since = host.away_since
            if since is not None:
                left, longest = host.next - self._now(), self._options.longest
                if left > longest:
                    raise AwayError(
                        f"{name} asks to be left alone for {math.ceil(left)} s and was not asked "
                        "for this; run it again later"
                    )
                if self._now() - since > longest and left > 0:
                    raise AwayError(
                        f"{name} was {host.state} for {longest:.0f} s and was not asked for this; "
                        "run it again later"
                    )
                await asyncio.sleep(left)
                answer = await ask()
                if answer.again:
                    host.failed += 1
                    if host.failed == _NOTED:
                        self._note(f"{name} is {host.state}: waiting for it")
                    host.next = self._now() + max(self._options.pause(host.failed), answer.wait)
                return answer
        # It answered somebody else meanwhile.
        return await ask()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
